"""What a node does when a model is wanted, as a process that a test can kill: `python -m tests.unit.provision.importer DATA INDEX URL SHA256`."""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

from fornada.core.names import LOCAL_ACCOUNT, ModelName, VersionDigest
from fornada.core.ports import Step, Version
from fornada.core.settings import ProvisionSettings
from fornada.core.specs import spec_from_table
from fornada.node.provision import Provisioner
from fornada.store.sqlite import SqliteStore
from tests.unit.provision.direct_builds import DirectBuilds


def told(step: Step) -> None:
    print(step.phase, flush=True)


async def main(data: str, index: str, url: str, sha256: str, *, proofs: SqliteStore) -> None:
    settings = ProvisionSettings(find_links=[index])
    provisioner = Provisioner(
        data_dir=Path(data),
        keeper=DirectBuilds(),
        settings=settings,
        proofs=proofs,
        allow_private=[urlsplit(url).netloc],
        inherited={"UV_NO_INDEX": "1"},
    )
    await provisioner.start()
    table = {
        "name": "@test/a",
        "python": {"dependencies": ["tiny==1.0"]},
        "artifacts": [{"path": "w.bin", "sha256": sha256, "source": [url]}],
    }
    spec = spec_from_table(table)
    lock = (await provisioner.lock(spec, {})).environment
    version = Version(ModelName("@test/a"), VersionDigest("a" * 64), LOCAL_ACCOUNT, spec, f"{data}/bundles/x", lock, 0.0)
    artifacts = await provisioner.artifacts(version, told)
    environment = await provisioner.environment(version, told)
    print("done", environment, artifacts["w.bin"], flush=True)
    await provisioner.close()


if __name__ == "__main__":
    data, index, url, sha256 = sys.argv[1:]
    Path(data).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(data, index, url, sha256, proofs=SqliteStore(Path(data) / "store.sqlite")))
