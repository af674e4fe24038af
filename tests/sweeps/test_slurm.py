"""A sweep on a real SLURM scheduler, which this test starts on one node: a job is killed, and nothing is lost.

It needs ``slurmctld``, ``slurmd`` and ``munged`` (Debian: slurm-wlm, munge) and ``pip install dask-jobqueue``.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from solvable import ScalarNetwork
from solvable.sweeps import status, sweep

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
MISSING = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
SECONDS = 0.4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)} (Debian: slurm-wlm, munge)"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="SLURM's daemons start jobs as root"),
]

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=1
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=30).stdout


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """SLURM with one node, this machine, in a folder of its own."""
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
    for name in ("state", "spool", "logs"):
        (tmp_path / name).mkdir()
    # munged refuses folders and keys that others may write to or read.
    tmp_path.chmod(0o755)
    key = tmp_path / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    text = CONFIGURATION.format(folder=tmp_path, host=host, ports=free_ports(2), cores=os.cpu_count())
    (tmp_path / "slurm.conf").write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    munge = [f"--{name}={tmp_path}/munge.{name.removesuffix('-file')}" for name in ("socket", "pid-file", "log-file")]
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--seed-file={tmp_path}/seed", *munge],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-c"],
    ]
    started = []
    try:
        for command in daemons:
            with open(tmp_path / "logs" / command[0], "wb") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
            time.sleep(1)
        begin = time.monotonic()
        while "idle" not in subprocess.run(["sinfo", "-h"], capture_output=True, text=True).stdout:
            if time.monotonic() - begin > 60:
                logs = "\n".join(path.read_text()[-1000:] for path in sorted((tmp_path / "logs").iterdir()))
                pytest.skip(f"SLURM does not start on this machine: {logs}")
            time.sleep(0.5)
        yield tmp_path
    finally:
        subprocess.run(["scancel", "--user=root"], capture_output=True)
        for daemon in reversed(started):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()


def slow_product(model: ScalarNetwork) -> dict[str, float]:
    """A number for every cell that shows which cell it is, after a while."""
    time.sleep(SECONDS)
    return {"product": model.target * model.output_scale}


def test_a_killed_job_loses_nothing(scheduler: Path, tmp_path: Path) -> None:
    from dask.distributed import Client
    from dask_jobqueue import SLURMCluster

    over = {"target": np.linspace(0.5, 2.0, 8), "output_scale": np.linspace(0.5, 1.5, 7)}
    store, killed = tmp_path / "plane.zarr", []

    def kill_a_job() -> None:
        """Kill one of the two jobs, with everything that it runs, once a quarter of the cells are there."""
        begin = time.monotonic()
        while time.monotonic() - begin < 120:
            if store.exists() and status(store)["done"] >= 14:
                running = slurm("squeue", "-h", "--states=R", "-o", "%i").split()
                if running:
                    slurm("scancel", "--signal=KILL", "--full", running[0])
                    killed.append((running, status(store)["done"]))
                return
            time.sleep(0.1)

    here = [f"cd {Path(__file__).parent}", f"export PYTHONPATH={os.pathsep.join(filter(None, sys.path))}"]
    with SLURMCluster(
        cores=1,
        processes=1,
        memory="400MB",
        walltime="00:05:00",
        python=sys.executable,
        scheduler_options={"host": "127.0.0.1", "dashboard": False},
        job_script_prologue=[*here, "export OPENBLAS_NUM_THREADS=1"],
        log_directory=str(scheduler / "logs"),
        worker_extra_args=["--no-dashboard"],
    ) as cluster:
        cluster.scale(jobs=2)
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=120)
            killer = threading.Thread(target=kill_a_job)
            killer.start()
            plane = sweep(ScalarNetwork(), over, slow_product, store=store, client=client, tile=1, progress=False)
            killer.join()
    assert killed, "no job was killed: the sweep was over too soon"
    (running, done), total = killed[0], plane["product"].size
    assert len(running) == 2
    assert done < total - 8
    expected = over["target"][:, None] * over["output_scale"]
    np.testing.assert_allclose(plane["product"].transpose("target", "output_scale"), expected, rtol=1e-12)
    assert status(store)["done"] == total
