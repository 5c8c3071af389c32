"""What commands share, free of any command line: finding, making, running, describing runs."""
