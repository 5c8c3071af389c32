"""Checks of the manifests of `launch/` by schemas that refuse unknown fields.

A cluster's YAML: Ray's own schema and checks, and the fields of a machine that we use. A RayJob:
the fields of KubeRay's that we use. Pods and the rest of Kubernetes: Kubernetes' own schemas.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate.utils
import yaml

from leap_rl.training.runtime.ray.environment import LOCAL, make_ray_runtime

# It reads megabytes of schemas for each manifest.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).with_name("schemas")
RAYS_OWN = "ray-schema.json"
KUBERNETES = "1.33"

Manifest = dict[str, Any]
Place = tuple[str | int, ...]


class InvalidError(Exception):
    """A manifest is not valid."""


def read(path: str) -> Manifest:
    manifest: Manifest = yaml.safe_load((ROOT / "launch" / path).read_text())
    return manifest


def check_cluster(config: Manifest) -> None:
    """Check a Ray cluster's YAML."""
    make_ray_runtime(trainers=1, address=LOCAL)  # sets variables that Ray reads at import
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    _check(config, Path(ray.autoscaler.__file__).parent / RAYS_OWN)
    for node_type in config["available_node_types"].values():
        _check(node_type["node_config"], SCHEMAS / f"{config['provider']['type']}_node.json")
    _check_names(config["available_node_types"], {"resources"}, {"CPU", "GPU", "memory"})
    try:
        validate_config(prepare_config(copy.deepcopy(config)))
    except (ValueError, jsonschema.ValidationError) as error:
        raise InvalidError(str(error)) from None


def check_rayjob(job: Manifest) -> None:
    """Check a RayJob and the pods that it makes."""
    _check(job, SCHEMAS / "rayjob.json")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for template in (job["spec"]["submitterPodTemplate"], *(one["template"] for one in groups)):
        metadata = {"name": "pod", **template["metadata"]}
        check_kubernetes(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )


def check_kubernetes(manifest: Manifest) -> None:
    """Check a manifest by Kubernetes' own schema."""
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except (
        kubernetes_validate.ValidationError,
        kubernetes_validate.SchemaNotFoundError,
        KeyError,
    ) as error:
        raise InvalidError(repr(error)) from None
    _check_names(manifest, {"requests", "limits"}, {"cpu", "memory", "storage", "nvidia.com/gpu"})


def _check_names(manifest: Any, fields: set[str], known: set[str]) -> None:
    """Check the names of resources, which the schemas do not."""
    for place in keys(manifest):
        if len(place) > 1 and place[-2] in fields and place[-1] not in known:
            raise InvalidError(f"{place}: no such resource")


def _check(manifest: Manifest, schema: Path) -> None:
    try:
        _validator(schema).validate(manifest)
    except jsonschema.ValidationError as error:
        raise InvalidError(f"{error.json_path}: {error.message}") from None


@cache
def _validator(file: Path) -> jsonschema.Draft7Validator:
    """Return a schema's validator; checking the schema takes most of the time, hence the cache."""
    schema = json.loads(file.read_text())
    if file.name == RAYS_OWN:
        schema["properties"]["provider"]["additionalProperties"] = False  # Ray allows any there
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


CHECKS: dict[str, Callable[[Manifest], None]] = {
    "ray/aws.yaml": check_cluster,
    "ray/gcp.yaml": check_cluster,
    "kuberay/rayjob.yaml": check_rayjob,
    "kuberay/storage.yaml": check_kubernetes,
    "kuberay/network.yaml": check_kubernetes,
}

FREE = {"labels", "matchLabels", "file_mounts", "available_node_types"}
"""Fields whose keys the user chooses."""


def keys(manifest: Any, place: Place = (), seen: set[int] | None = None) -> Iterator[Place]:
    """Yield the places of all keys that a validator knows; those of a YAML anchor once."""
    seen = set() if seen is None else seen
    if not isinstance(manifest, (dict, list)) or id(manifest) in seen:
        return
    seen.add(id(manifest))
    for key, value in manifest.items() if isinstance(manifest, dict) else enumerate(manifest):
        if isinstance(manifest, dict) and not (place and place[-1] in FREE):
            yield (*place, key)
        yield from keys(value, (*place, key), seen)


def misspelled(manifest: Manifest, place: Place) -> Manifest:
    """Return the manifest with two letters of one key swapped."""
    changed = copy.deepcopy(manifest)
    inside: Any = changed
    for step in place[:-1]:
        inside = inside[step]
    key = str(place[-1])
    at = next(index for index in range(len(key) - 1) if key[index] != key[index + 1])
    wrong = key[:at] + key[at + 1] + key[at] + key[at + 2 :]
    inside[wrong] = inside.pop(place[-1])
    return changed
