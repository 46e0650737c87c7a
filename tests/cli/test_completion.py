"""Shell completion: the scripts, and what bash makes of one."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from nsqclient.cli import COMMANDS, SHORT, main
from nsqclient.cli.completion import SHELLS, script


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_with_every_command(shell, capsys):
    """And with flags; it is made of the tools' own, so that a new one is there by itself."""
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in (*COMMANDS, *SHORT))
    assert "lookupd-http-address" in text and "partition-by" in text


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Let bash complete the last of some words; return what it offers."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    path = tmp_path_factory.mktemp("completion") / "nsqclient.bash"
    path.write_text(script("bash"))

    def run(*words: str) -> set[str]:
        program = (
            f"source {path}\n"
            'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"\n'
            'function=$(complete -p nsqclient | sed -E "s/.*-F ([^ ]+).*/\\1/")\n'
            '"$function" nsqclient "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"\n'
            'printf "%s\\n" "${COMPREPLY[@]}"\n'
        )
        done = subprocess.run([bash, "-c", program, "bash", *words], capture_output=True,
                              text=True, timeout=60, check=True)
        return set(done.stdout.split())

    return run


@pytest.mark.parametrize("words, offered", [
    (["nsqclient", "nsq_t"], {"nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq"}),
    (["nsqclient", "help", "doc"], {"doctor"}),
    (["nsqclient", "topic", "un"], {"unpause"}),
    (["nsqclient", "tail", "--print"], {"--print-topic"}),
    (["nsqclient", "nsq_tail", "--lookupd"], {"--lookupd-http-address"}),
    (["nsqclient", "nsq_tail", "--log-level", "w"], {"warn"}),
    (["nsqclient", "spark", "arch"], {"archive"}),
    (["nsqclient", "spark", "archive", "--partition"], {"--partition-by"}),
    (["nsqclient", "completion", "b"], {"bash"}),
])
def test_bash_completes_commands_flags_and_values(complete, words, offered):
    """As if Tab were pressed behind the last word."""
    assert complete(*words) == offered


@pytest.mark.parametrize("words, said", [
    ([], "give one shell: bash, zsh, fish, tcsh"),
    (["bahs"], "unknown shell 'bahs': did you mean bash?"),
    (["bash", "zsh"], "give one shell"),
])
def test_a_wrong_shell_is_a_usage_error(words, said, capsys):
    """Two lines, and status 2."""
    assert main(["completion", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 2


def test_without_shtab_the_extra_is_named(monkeypatch, capsys):
    """One line, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert capsys.readouterr().err == (
        "completion: shtab is missing: pip install 'nsqclient[cli]'\n")
