"""Knocks at addresses as a stranger would; prints as JSON what each answered.

Arguments: a token to show, "" for none, then HOST:PORT, ... HTTP is tried first, then gRPC.
"""

import http.client
import json
import sys

import grpc

METHODS = (
    "ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "ray.rpc.NodeManagerService/GetNodeStats",
    "ray.rpc.ObjectManagerService/Pull",
    "ray.rpc.ReporterService/HealthCheck",
    "ray.rpc.RayletDriver/ClusterInfo",
    "ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "ray.rpc.events.EventAggregatorService/AddEvents",
)


def knock(address: str, token: str) -> list[str]:
    """Return the status of HTTP or, where that is not spoken, those of Ray's methods over gRPC."""
    shown = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", "/", headers=shown)
        return [str(connection.getresponse().status)]
    except (http.client.HTTPException, OSError):
        pass
    finally:
        connection.close()
    with grpc.insecure_channel(address) as channel:
        return sorted({_call(channel, method, shown) for method in METHODS})


def _call(channel: grpc.Channel, method: str, shown: dict[str, str]) -> str:
    metadata = [(name.lower(), value) for name, value in shown.items()]
    try:
        channel.unary_unary(f"/{method}")(b"", timeout=10, metadata=metadata)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


if __name__ == "__main__":
    print(json.dumps({address: knock(address, sys.argv[1]) for address in sys.argv[2:]}))
