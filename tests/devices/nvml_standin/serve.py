"""Opens machines and answers what tests ask of them, each in a process of its own.

It is started with the stand-in on LD_LIBRARY_PATH and forks for each machine before NVML is loaded, so that every one
begins afresh and none waits for Python to start.
"""

import os
import signal
import sys
from multiprocessing.connection import Connection, Listener

from gpuwise.devices import cpu, this_machine
from gpuwise.devices.nvml import machine as nvml

__all__ = ["cpu", "nvml"]  # loaded once, for all machines


def answer(machine, name, args=None, kwargs=None):
    value = getattr(machine, name)
    if args is not None:
        return False, value(*args, **kwargs)
    return (True, None) if callable(value) else (False, value)


def serve(connection: Connection) -> None:
    env, options = connection.recv()
    os.environ.update(env)
    try:
        machine = this_machine(**options)
    except Exception as error:
        connection.send(error)
        return
    connection.send("ready")
    while True:
        try:
            question = connection.recv()
        except EOFError:
            break
        try:
            connection.send(answer(machine, *question))
        except Exception as error:
            connection.send(error)
    machine.close()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = Listener(sys.argv[1], backlog=16)
print("ready", flush=True)
while True:
    connection = listener.accept()
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        serve(connection)
        os._exit(0)
    connection.close()
