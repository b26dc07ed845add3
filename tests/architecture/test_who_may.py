"""Powers that one place has and no other: HTTP statuses, processes, the environment, the clock."""

import ast
import http

from tests.architecture.sources import dotted, files, imports, name_of, tree

ERROR_STATUSES = {status.value for status in http.HTTPStatus if status.value >= 400}

STARTS_PROCESSES = ("fornada/keeper/", "fornada_sdk/runner/zygote.py", "fornada_sdk/sandbox/forking.py", "fornada/app/serve.py")

# Files that may use one of the calls below although they aren't among those, each with the reason.
EXCUSED: dict[str, set[str]] = {
    # The external server of engine "command" is the instance: it lives in its runner's session and process group, and ends with it.
    "fornada_sdk/runner/engines/command_process.py": {"subprocess"},
    # The zygote's own, and gone before that forks for anybody: it tells what a fork's first steps call.
    "fornada_sdk/runner/rehearsal.py": {"os.fork"},
}

PROCESS_MODULES = {"subprocess", "multiprocessing", "pty"}
PROCESS_CALLS = {
    *("os.fork", "os.forkpty", "os.system", "os.popen", "os.kill", "os.killpg", "os.posix_spawn", "os.posix_spawnp"),
    *("os.execl", "os.execle", "os.execlp", "os.execlpe", "os.execv", "os.execve", "os.execvp", "os.execvpe"),
    *("os.spawnl", "os.spawnle", "os.spawnlp", "os.spawnlpe", "os.spawnv", "os.spawnve", "os.spawnvp", "os.spawnvpe"),
    *("signal.pidfd_send_signal", "signal.pthread_kill", "signal.raise_signal"),
    *("asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
    *("concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process"),
}
LOOP_CALLS = {"subprocess_exec", "subprocess_shell"}


def uses(module: ast.Module, names: set[str]) -> list[tuple[int, str]]:
    """Lines where one of `names` is used, written in full or imported by its last part."""
    found = [(line, name) for line, name in imports(module) if name in names]
    found += [(node.lineno, dotted(node)) for node in ast.walk(module) if isinstance(node, ast.Attribute) and dotted(node) in names]
    return found


def test_only_problems_knows_http_statuses():
    for path in files("fornada"):
        name = name_of(path)
        if name == "fornada/edge/problems.py":
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and type(node.value) is int:
                assert node.value not in ERROR_STATUSES, f"{name}:{node.lineno}: the status {node.value} belongs to edge.problems"
        for line, imported in imports(tree(path)):
            assert imported not in ("http.HTTPStatus", "starlette.status"), f"{name}:{line} imports {imported}: ask edge.problems for it"


def test_only_the_keeper_the_zygote_and_serve_start_or_signal_processes():
    for path in files("fornada") + files("fornada_sdk"):
        name = name_of(path)
        if name.startswith(STARTS_PROCESSES):
            continue
        found = uses(tree(path), PROCESS_CALLS)
        found += [(line, module) for line, module in imports(tree(path)) if module.split(".")[0] in PROCESS_MODULES]
        found += [(n.lineno, n.attr) for n in ast.walk(tree(path)) if isinstance(n, ast.Attribute) and n.attr in LOOP_CALLS]
        found = [(line, what) for line, what in found if what not in EXCUSED.get(name, ())]
        assert not found, f"{name} starts or signals processes: {found}"


def test_only_the_configuration_reads_the_environment():
    for path in files("fornada"):
        if name_of(path) == "fornada/app/config.py":
            continue
        found = uses(tree(path), {"os.environ", "os.environb", "os.getenv", "os.getenvb"})
        found = [(line, what) for line, what in found if what not in EXCUSED.get(name_of(path), ())]
        assert not found, f"{name_of(path)} reads the environment: {found}"


def test_core_asks_nobody_what_time_it_is():
    calls = {f"{prefix}.{call}" for prefix in ("datetime", "datetime.datetime") for call in ("now", "utcnow", "today")}
    calls |= {"date.today", "datetime.date.today", "uuid.uuid1", "uuid.uuid4"}
    for path in files("fornada/core"):
        assert not uses(tree(path), calls), f"{name_of(path)} reads a clock or draws chance; those are arguments"


def test_every_excuse_is_still_needed():
    for name, excused in EXCUSED.items():
        (path,) = [path for path in files("fornada") + files("fornada_sdk") if name_of(path) == name]
        used = {what for _, what in uses(tree(path), excused)} | {what for _, what in imports(tree(path)) if what in excused}
        assert used == excused, f"{name} no longer uses {excused - used}"
