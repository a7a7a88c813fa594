"""A training script that keeps to what jobs and the controller agree on, with nothing but the standard library.

    trainer.py STEPS STEP_S [mute] [deaf] [stubborn]

It counts steps, saves when it is asked to leave, and goes on from what it saved. ``mute`` says nothing to the
controller, ``deaf`` does not look at what it is asked, ``stubborn`` does not end on SIGTERM.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time


def put(path, found):
    with open(path + ".tmp", "w") as file:
        json.dump(found, file)
    os.replace(path + ".tmp", path)


def get(path):
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def send(kind, **content):
    named = {"job": "GPUWISE_JOB_ID", "token": "GPUWISE_TOKEN"}
    known = {name: os.environ[variable] for name, variable in named.items()}
    message = {"v": 1, "attempt": int(os.environ["GPUWISE_ATTEMPT"]), "rank": 0, "kind": kind, **known, **content}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(json.dumps(message).encode(), socket.MSG_DONTWAIT, os.environ["GPUWISE_SOCKET"])


steps, step_s, habits = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
attempt, checkpoint = os.environ["GPUWISE_ATTEMPT_DIR"], os.environ["GPUWISE_CHECKPOINT_DIR"]
if "stubborn" in habits:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
first = get(f"{checkpoint}/latest.json").get("step", 0)
print(f"from {first} of {steps} on {os.environ['GPUWISE_DEVICES']}", flush=True)
if "mute" not in habits:
    put(f"{attempt}/sdk.json", {"can_suspend": True, "steps": steps})
    send("hello", can_suspend=True, steps=steps)
for step in range(first, steps):
    control = get(f"{attempt}/control.json")
    if control.get("want") == "leave" and "deaf" not in habits:
        put(f"{checkpoint}/latest.json", {"step": step, "steps": steps})
        send("saved", step=step, seq=control["seq"])
        put(f"{attempt}/saved.json", {"seq": control["seq"], "step": step, "steps": steps})
        sys.exit(75)
    time.sleep(step_s)
    if "mute" not in habits:
        send("progress", step=step + 1, steps=steps, loss=1 / (step + 1), samples_per_s=None)
print("done", flush=True)
