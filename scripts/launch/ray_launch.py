#!/usr/bin/env python3
"""Trains on a Ray cluster: one `mpretrain launch` on each of its machines.

    scripts/launch/ray_launch.py --nodes 2 --ranks 8 -- --config 350m_fp8.json --resume auto
    ray job submit --working-dir . -- scripts/launch/ray_launch.py --nodes 2 --ranks 8 -- --config ...

--ranks is per machine; --gpus-per-rank 0 trains on CPUs. The exit code is the first that failed's.
"""

import argparse
import os
import socket
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(max_retries=0)
def address_and_port():
    with socket.create_server(("", 0)) as server:
        return f"{ray.util.get_node_ip_address()}:{server.getsockname()[1]}"


@ray.remote(max_retries=0)
def launch(command, directory):
    return subprocess.run(command, cwd=directory, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1, help="machines (default: 1)")
    parser.add_argument("--ranks", type=int, required=True, help="ranks on each machine")
    parser.add_argument("--cpus-per-rank", type=int, default=1, help="cores to reserve (default: 1)")
    parser.add_argument("--gpus-per-rank", type=int, default=1, help="1, or 0 to train on CPUs")
    parser.add_argument("--program", default=os.environ.get("MPRETRAIN", "mpretrain"))
    parser.add_argument("arguments", nargs="+", help="after --: the options of mpretrain train")
    options = parser.parse_args()
    ray.init()
    bundle = {"CPU": options.ranks * options.cpus_per_rank, "GPU": options.ranks * options.gpus_per_rank}
    group = placement_group([bundle] * options.nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready())

    def on_node(task, node, cpus):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=node)
        return task.options(num_cpus=cpus, num_gpus=bundle["GPU"], scheduling_strategy=place)

    master = ray.get(on_node(address_and_port, 0, bundle["CPU"]).remote())
    command = [options.program, "launch", f"--ranks={options.ranks}", f"--nodes={options.nodes}", f"--master={master}"]
    running = [
        on_node(launch, node, bundle["CPU"]).remote(
            [*command, f"--node={node}", f"--run-id={group.id.hex()}", "--", *options.arguments], os.getcwd()
        )
        for node in range(options.nodes)
    ]
    while running:
        [ended], running = ray.wait(running)
        if code := ray.get(ended):
            sys.exit(code)


if __name__ == "__main__":
    main()
