"""`batchrun completion`."""

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit

VARIABLE = "_BATCHRUN_COMPLETE"  # by click's rule, of the program's name


@make_command("batchrun completion bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(context: Context, shell: str) -> int:
    """Print the script with which a shell completes commands, options and the names of jobs.

    \b
    For every new shell:
      bash   eval "$(batchrun completion bash)"     in ~/.bashrc
      zsh    eval "$(batchrun completion zsh)"      in ~/.zshrc, after compinit
      fish   batchrun completion fish | source      in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from batchrun.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "batchrun", VARIABLE).source()
    if context.json:
        emit("completion", {"shell": shell, "script": script})
    else:
        click.echo(script)
    return 0
