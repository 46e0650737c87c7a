"""Shell completion: the scripts, and what bash makes of one."""

import shutil
import subprocess
import sys

import pytest

from nsqclient.cli import COMMANDS, SHELLS, SHORT, main, script


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_with_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(command in text for command in (*COMMANDS, *SHORT))
    assert "lookupd-http-address" in text and "partition-by" in text


@pytest.mark.parametrize("words, offered", [
    (["help", "doc"], {"doctor"}),
    (["topic", "un"], {"unpause"}),
    (["tail", "--print"], {"--print-topic"}),
    (["nsq_tail", "--log-level", "w"], {"warn"}),
    (["spark", "archive", "--partition"], {"--partition-by"}),
    (["completion", "b"], {"bash"}),
])
def test_bash_completes_commands_flags_and_values(tmp_path, words, offered):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    path = tmp_path / "nsqclient.bash"
    path.write_text(script("bash"))
    program = (
        f"source {path}\n"
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"\n'
        'function=$(complete -p nsqclient | sed -E "s/.*-F ([^ ]+).*/\\1/")\n'
        '"$function" nsqclient "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n')
    done = subprocess.run([bash, "-c", program, "bash", "nsqclient", *words],
                          capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize("words, said", [
    ([], "give one shell: bash, zsh, fish, tcsh"),
    (["bahs"], "unknown shell 'bahs': did you mean bash?"),
    (["bash", "zsh"], "give one shell"),
])
def test_a_wrong_shell_is_a_usage_error(words, said, capsys):
    assert main(["completion", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.splitlines()) == 2


def test_without_shtab_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert capsys.readouterr().err == (
        "completion: shtab is missing: pip install 'nsqclient[cli]'\n")
