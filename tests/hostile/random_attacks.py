"""Hostile tenants and callers, at random, on a simulated node with the real agent.

    python -m tests.hostile.random_attacks --seconds 60 [--seed N] [ATTACK …]

After each attack the agent is the same process and serves an honest pod. A failure names the seed.
"""

import argparse
import asyncio
import contextlib
import random
import secrets
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from gpumanager.names import ANNOTATION_DEVICE, VCORE, VMEMORY
from tests.hostile.hostile_node import HostileNode, hostile, pod

HONEST: Final = ("cuda-play", "allocate", "--block", "64MiB", "--total", "512MiB")
ANSWER_SECONDS: Final = 120.0
"""For an honest pod, on a machine that others keep busy."""

KEYS: Final = (
    *("tencent.com/predicate-gpu-idx-0", "tencent.com/predicate-time", "tencent.com/gpu-assigned"),
    *("tencent.com/vcuda-core-limit", "tencent.com/vcuda-profile", "tencent.com/include-gpu-model"),
    *(ANNOTATION_DEVICE, VCORE, VMEMORY),
)
VARIABLES: Final = (
    *("VCUDA_ALLOCATION", "VCUDA_GPUS", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"),
    *("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_BIND_NOW", "CUDA_MODULE_LOADING"),
)
PATHS: Final = ("/metrics", "/healthz", "/readyz", "/api/node", "/", "/version", "/%2e%2e/etc")

Attack = Callable[[HostileNode, random.Random, float], Coroutine[Any, Any, int]]
"""Goes on for so many seconds; how often it tried."""


def a_word(chance: random.Random) -> str:
    """What a number, a list or a name should be, and is not."""
    match chance.randrange(5):
        case 0:
            return chance.choice("0123456789") * chance.choice((1, 20, 400, 5000))
        case 1:
            return str(chance.choice((-1, 0, 1, 2**31, 2**63, 2**64)))
        case 2:
            return ",".join(chance.choice(("0", "1", "-1", "x", "")) for _ in range(20))
        case 3:
            return chance.choice(("nan", "inf", "1e400", "0x10", "٣", "\u2028", "{}", "[[[["))
    letters = [chr(chance.randrange(32, 0x2FF)) for _ in range(chance.randrange(60))]
    return "".join(letters)


def of_tenant(kind: str) -> Attack:
    async def attack(node: HostileNode, chance: random.Random, seconds: float) -> int:
        seed = chance.getrandbits(31)
        name = f"{kind}-{seed}"
        words = ("random_moves.py", seed, seconds, kind)
        (result,) = await node.run(hostile(name, *words, cores=10, memory=1))
        made = [int(line.split()[1]) for line in node.said[name] if line.startswith("moves ")]
        assert made, (result.exit_code, node.said[name][-3:])
        return made[0]

    return attack


def of_pods(ask: Callable[[random.Random], Mapping[str, str]], *, environment: bool) -> Attack:
    """Pods that end at once, and say odd things of themselves; each is admitted or refused."""

    async def attack(node: HostileNode, chance: random.Random, seconds: float) -> int:
        ends, tried = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            said = ask(chance)
            one = pod(
                f"odd-{tried}-{chance.getrandbits(31)}",
                ("true",),
                cores=10,
                memory=1,
                environment=tuple(said.items()) if environment else (),
                annotations={} if environment else said,
            )
            async with asyncio.timeout(ANSWER_SECONDS):
                if await node.node.admit(one) is None:
                    await node.node.runner.run(one)
            tried += 1
        return tried

    return attack


def some(keys: Sequence[str]) -> Callable[[random.Random], Mapping[str, str]]:
    return lambda chance: {key: a_word(chance) for key in chance.sample(keys, 3)}


def a_request(chance: random.Random) -> bytes:
    method = chance.choice((b"GET", b"POST", b"HEAD", b"PUT", chance.randbytes(4)))
    path = chance.choice(PATHS).encode() + chance.randbytes(chance.choice((0, 0, 3)))
    heads = [b"Host: node", b"Content-Length: " + a_word(chance).encode("utf-8", "replace")]
    heads += [chance.randbytes(chance.randrange(40)) for _ in range(chance.randrange(3))]
    text = method + b" " + path + b" HTTP/1.1\r\n" + b"\r\n".join(heads) + b"\r\n\r\n"
    return text if chance.random() < 0.7 else text[: chance.randrange(len(text))]


async def say(port: int, words: bytes, patience: float) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(words)
        async with asyncio.timeout(patience):
            return await reader.read(1 << 16)
    finally:
        writer.close()


async def doors(node: HostileNode, chance: random.Random, seconds: float) -> int:
    ends, tried = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        with contextlib.suppress(OSError, TimeoutError):
            await say(node.port, a_request(chance), 0.2)
        tried += 1
    answer = await say(node.port, b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n", ANSWER_SECONDS)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return tried


ATTACKS: Final[Mapping[str, Attack]] = {
    "pages": of_tenant("pages"),
    "hello": of_tenant("hello"),
    "annotations": of_pods(some(KEYS), environment=False),
    "environment": of_pods(some(VARIABLES), environment=True),
    "doors": doors,
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def attacked(name: str, seed: int, seconds: float) -> int:
    """How often it tried; AssertionError where it did harm."""
    async with HostileNode(**{"query-port": free_port()}) as node:
        agent = node.node.agent.pid
        tried = await ATTACKS[name](node, random.Random(seed), seconds)
        async with asyncio.timeout(ANSWER_SECONDS):
            (honest,) = await node.run(pod("honest", HONEST, cores=60, memory=4))
        assert honest.exit_code == 0, node.said["honest"]
        await node.agent_lives(0.1)
        assert node.node.agent.pid == agent
        return tried


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("attacks", nargs="*", default=tuple(ATTACKS), metavar="ATTACK")
    parser.add_argument("--seconds", type=float, default=60, help="for each attack")
    parser.add_argument("--seed", type=int, default=secrets.randbits(31))
    given = parser.parse_args(arguments)
    for name in given.attacks:
        print(f"{name}, seed {given.seed}: ", end="", flush=True)
        print(asyncio.run(attacked(name, given.seed, given.seconds)), "tries, no harm", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
