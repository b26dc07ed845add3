"""`fornada serve`."""

from pathlib import Path

import click

from fornada.cli.failures import CommandFailed


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on; one that others reach needs keys.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", help="Port to listen on; 0 takes any free one.  [default: 8250]")
@click.option(
    "--data-dir", metavar="DIR", help="Where everything is kept.  [default: /var/lib/fornada for root, else ~/.local/share/fornada]"
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A fornada.toml; docs/reference/settings.md lists what may stand there.",
)
@click.option(
    "--isolation",
    type=click.Choice(["auto", "full", "namespaces", "landlock", "none"]),
    help="How models are confined. auto: the best that this machine gives, never none; a named one as it is, or no start. [default: auto]",
)
@click.option(
    "--upgrade", is_flag=True, help="Put this release's control plane in the place of the one that serves; models and callers go on."
)
@click.option("--ready-example", is_flag=True, hidden=True, help="Prepare the example model and print a curl line for it.")
def serve(
    host: str | None,
    port: int | None,
    data_dir: str | None,
    config: Path | None,
    isolation: str | None,
    upgrade: bool,
    ready_example: bool,
) -> None:
    """Run a node until it is told to stop.

    It prints a line once it accepts requests. Ctrl-C (or SIGTERM) lets running requests finish, then ends every model.

    With --upgrade it starts no node: run from a newer installation, with the --data-dir and --config of a node that runs, it replaces
    that node's control plane while it serves. Where that can't be, the node goes on as it was. The keeper, --host, --port and
    --isolation stay as they were until the node itself is started again.

    \b
    Example:
      fornada serve
      fornada serve --port 0 --data-dir /srv/models --config fornada.toml
      /opt/fornada-0.2/bin/fornada serve --upgrade --data-dir /srv/models --config fornada.toml
    """
    from fornada.app.certificates import refuse_unusable_certificates
    from fornada.app.config import ConfigError, environment, load
    from fornada.app.keys import refuse_open_doors

    flags = {"host": host, "port": port, "data_dir": data_dir, "isolation": isolation, "ready_example": ready_example or None}
    try:
        settings = load(config, flags, environment())
        refuse_unusable_certificates(settings)
        if not upgrade:
            refuse_open_doors(settings)
    except ConfigError as error:
        raise Misconfigured(str(error)) from None
    if upgrade:
        from fornada.app.upgrade import upgrade as upgrade_node

        code = upgrade_node(settings)
    else:
        from fornada.app.serve import serve as run_node

        code = run_node(settings)
    click.get_current_context().exit(code)


class Misconfigured(CommandFailed):
    """What was asked for by flag, environment or file can't be: as wrong as a wrong flag."""

    exit_code = 2
