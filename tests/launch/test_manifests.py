from __future__ import annotations

import shlex
import stat

import pytest

from tests.launch.manifests import CHECKS, ROOT, InvalidError, keys, misspelled, read

CLUSTERS = ("ray/aws.yaml", "ray/gcp.yaml")


def test_every_manifest_is_checked() -> None:
    found = {str(path.relative_to(ROOT / "launch")) for path in (ROOT / "launch").glob("**/*.yaml")}
    assert found - {"sweep.yaml"} == set(CHECKS)  # which test_sweep.py checks


@pytest.mark.parametrize("path", CHECKS)
def test_a_manifest_is_valid_and_with_any_misspelled_key_is_not(path: str) -> None:
    manifest = read(path)
    CHECKS[path](manifest)
    places = list(keys(manifest))
    assert len(places) >= 10
    for place in places:
        try:
            CHECKS[path](misspelled(manifest, place))
        except (InvalidError, KeyError):
            continue
        pytest.fail(f"{path}: a typo in {place} is not noticed")


@pytest.mark.parametrize("path", CLUSTERS)
def test_a_cluster_names_files_that_are_there_and_no_others(path: str) -> None:
    config = read(path)
    mounts = {
        there: here for there, here in config["file_mounts"].items() if not here.startswith("~")
    }
    for there, here in mounts.items():
        assert (ROOT / here).exists()
        assert there == f"~/leap_rl/{here}"
    # What `make setup` reads there, and the program; nothing that may hold a key or a run: of
    # launch/ not all, where tokens lie.
    assert "launch" not in mounts.values()
    needed = {"Makefile", "requirements.lock", "pyproject.toml", "README.md", "leap_rl", "configs"}
    assert needed <= set(mounts.values())
    for name in ("setup_commands", "head_setup_commands", "head_start_ray_commands"):
        for command in config[name]:
            for word in shlex.split(command):
                if word.startswith("~/leap_rl/launch/"):
                    script = ROOT / word.removeprefix("~/leap_rl/")
                    assert script.stat().st_mode & stat.S_IXUSR, command


@pytest.mark.parametrize("path", CLUSTERS)
def test_a_clusters_head_is_on_demand_its_trainers_on_spot_and_all_ask_for_tokens(
    path: str,
) -> None:
    config = read(path)
    head, trainers = (config["available_node_types"][name] for name in ("head", "trainers"))
    assert config["head_node_type"] == "head"
    for kind in ("InstanceMarketOptions", "scheduling"):
        assert kind not in head["node_config"]
    text = str(trainers["node_config"]).lower()
    assert "spot" in text
    assert head["resources"] == {"CPU": 0}
    bounds = trainers["min_workers"], trainers["max_workers"]
    assert bounds == (0, 4) == (0, config["max_workers"])
    assert bounds[1] * trainers["resources"]["CPU"] == 16  # the paper's batch
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "chmod 600 ~/.ray/auth_token" in config["setup_commands"][0]
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        start = [command for command in config[name] if "ray stop" not in command]
        assert [command.split()[0] for command in start] == ["~/leap_rl/launch/ray/start-node"]
    assert "0.0.0.0" not in str(config)


def test_the_rayjob_shows_nothing_and_asks_for_a_token() -> None:
    job = read("kuberay/rayjob.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token", "secretName": "leap-rl-token"}
    head, (trainers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    policy = read("kuberay/network.yaml")["spec"]["podSelector"]["matchLabels"]
    pods = [job["spec"]["submitterPodTemplate"], head["template"], trainers["template"]]
    for pod in pods:
        assert policy.items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["image"] == "EDIT/leap-rl:EDIT"
    claim = {"claimName": read("kuberay/storage.yaml")["metadata"]["name"]}
    assert claim in [
        volume.get("persistentVolumeClaim") for volume in head["template"]["spec"]["volumes"]
    ]
    assert int(trainers["rayStartParams"]["num-cpus"]) * trainers["maxReplicas"] == 16


def test_kuberays_ray_is_the_one_that_is_locked() -> None:
    version = read("kuberay/rayjob.yaml")["spec"]["rayClusterSpec"]["rayVersion"]
    assert f"ray=={version}" in (ROOT / "requirements.lock").read_text().splitlines()
