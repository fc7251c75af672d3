"""What does not change about machine and process, as a part of the resource. Needs the OpenTelemetry SDK."""

from __future__ import annotations

import os
import sys
import uuid
import weakref
from collections.abc import Mapping

from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, OTELResourceDetector, Resource, ResourceDetector
from opentelemetry.util.types import AttributeValue

from otel_specdecode.host.machine import Machine, this_machine
from otel_specdecode.identity.declared import declared
from otel_specdecode.telemetry.names import Attr

Attributes = Mapping[str, AttributeValue]

# The members of `host.arch` by what systems call the processor.
_ARCHITECTURES = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "arm64": "arm64",
    "aarch64": "arm64",
    "armv6l": "arm32",
    "armv7l": "arm32",
    "armv8l": "arm32",
    "i386": "x86",
    "i686": "x86",
    "ppc64": "ppc64",
    "ppc64le": "ppc64",
    "s390x": "s390x",
}
_SYSTEMS = {"darwin": "darwin", "linux": "linux", "win32": "windows"}


class MachineResourceDetector(ResourceDetector):
    """The resource detector `specdecode`: machine, operating system and run. No host name, user name or serial number.

    What OTEL_RESOURCE_ATTRIBUTES sets is left out, so that it holds wherever this detector stands among others.
    """

    def detect(self) -> Resource:
        """Return what is known; nothing if even that fails. Takes some milliseconds once in a process."""
        try:
            said = OTELResourceDetector().detect().attributes
            return Resource({key: value for key, value in this_process().items() if key not in said})
        except Exception:
            return Resource({})


def this_process() -> dict[str, AttributeValue]:
    """Return the attributes of the machine that this process runs on, and of the run it belongs to."""
    attributes = machine_attributes(this_machine(), sys.platform)
    run_id = declared().run_id
    return {**attributes, Attr.SPECDECODE_RUN_ID: run_id} if run_id else attributes


def machine_attributes(machine: Machine, system: str) -> dict[str, AttributeValue]:
    """Return what a machine tells of itself, by attribute; what it does not tell has none.

    Args:
        machine: The machine.
        system: As `sys.platform` names it.
    """
    attributes: dict[str, AttributeValue | None] = {
        Attr.SPECDECODE_MACHINE_PROFILE: machine.profile,
        Attr.HOST_ARCH: _ARCHITECTURES.get(machine.architecture.lower()),
        Attr.HOST_CPU_MODEL_NAME: machine.chip,
        Attr.DEVICE_MANUFACTURER: "Apple" if system == "darwin" else None,
        Attr.DEVICE_MODEL_IDENTIFIER: machine.device_model,
        Attr.OS_TYPE: _SYSTEMS.get(system),
        Attr.OS_NAME: machine.os_name,
        Attr.OS_VERSION: machine.os_version,
        Attr.OS_BUILD_ID: machine.os_build,
        Attr.SPECDECODE_MACHINE_MEMORY_LIMIT: machine.memory_total,
        Attr.SPECDECODE_MACHINE_PHYSICAL_CORES: machine.physical_cores,
        Attr.SPECDECODE_MACHINE_LOGICAL_CORES: machine.logical_cores,
        Attr.SPECDECODE_MACHINE_PERFORMANCE_CORES: machine.performance_cores,
        Attr.SPECDECODE_MACHINE_EFFICIENCY_CORES: machine.efficiency_cores,
    }
    return {key: value for key, value in attributes.items() if value is not None and value != ""}


class ProcessResource(Resource):
    """A resource whose `service.instance.id` is another one in the child of a fork.

    Counters of two processes under one identity are read as one counter that jumps. SDKs since 1.44 renew the id that
    their providers hold, whoever set it; older ones do not.
    """

    def __init__(self, attributes: Attributes) -> None:
        """Begin with these attributes."""
        super().__init__(attributes)
        self._current: Attributes = super().attributes
        if hasattr(os, "register_at_fork"):
            me = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _after_fork(me))

    @property
    def attributes(self) -> Attributes:
        """The attributes in this process."""
        return self._current

    def _renew(self) -> None:
        self._current = {**self._current, SERVICE_INSTANCE_ID: str(uuid.uuid4())}


def _after_fork(reference: weakref.ref[ProcessResource]) -> None:
    resource = reference()
    if resource is not None:
        resource._renew()
