#!/usr/bin/env python3
"""Manual pages and bash completion of C4's programs, from what they say of themselves (--help).

manuals.py BIN_DIR OUT_DIR [DATE]: asks every program of BIN_DIR that is C4's, and `c4` for its verbs and theirs; writes
OUT_DIR/man1, OUT_DIR/man8 and OUT_DIR/completions/c4 and c4-install. The texts are those that the programs make from their
declarations of options, so that nothing here can be out of date; tests/service/help_test.cc holds --help to its form.
DATE stands at the foot of the pages (YYYY-MM-DD).
"""

import os
import pathlib
import re
import subprocess
import sys

DAEMONS = {"c4a": "node agent of C4", "c4d_master": "C4's master of a job", "c4p_master": "C4's path master"}
# The column that the help begins at: of a verb's options, of a daemon's, of the verbs.
OURS, CLI11, VERBS = 24, 30, 13


class Help:
    """What --help said: `summary`, `usage`, `blocks` of (heading, [(names, help)]), and `notes`, other paragraphs."""

    def __init__(self, text, column):
        self.summary, self.usage, self.blocks, self.notes = "", "", [], []
        for number, paragraph in enumerate(re.split(r"\n\n+", text.strip("\n"))):
            lines = paragraph.split("\n")
            if column == CLI11 and number == 0:
                self.summary = lines[0]
                lines = lines[1:]
            elif number == 0:
                self.summary = " ".join(line.strip() for line in lines).split(": ", 1)[1]
                continue
            if lines and lines[0].lower().startswith("usage:"):
                self.usage = " ".join(line.strip() for line in lines)[len("usage:"):].strip()
            elif lines and self.is_list(lines):
                heading = lines.pop(0)[:-1] if lines[0].endswith(":") else ""
                self.blocks.append((heading, self.entries(lines, column)))
            elif any(lines):
                self.notes.append(lines)

    @staticmethod
    def is_list(lines):
        body = lines[1:] if lines[0].endswith(":") and not lines[0].startswith(" ") else lines
        return bool(body) and all(line.startswith("  ") for line in body)

    @staticmethod
    def entries(lines, column):
        found = []
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if indent == 2:
                split = re.match(r"  (\S.*?)  +(\S.*)$", line)
                if split:
                    names, text = split.group(1), split.group(2)
                elif line[column - 1:column] == " " and line[column:column + 1] not in ("", " "):
                    names, text = line[:column].strip(), line[column:]
                else:
                    names, text = line.strip(), ""
                found.append([names, text])
            elif found:
                found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
        return [(names, text) for names, text in found]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def page(name, section, date, version, summary, parts):
    text = f'.TH {roff(name.upper())} {section} "{date}" "C4 {version}" "C4"\n.SH NAME\n'
    return text + f"{roff(name)} \\- {roff(summary)}\n" + "".join(parts)


def blocks(said, level=".SH"):
    text = ""
    for heading, entries in said.blocks:
        text += f"{level} {roff((heading or 'OTHERS').upper() if level == '.SH' else heading)}\n" if heading else ""
        for names, what in entries:
            text += f".TP\n.B {roff(names)}\n{roff(what) if what else chr(92) + '&'}\n"
    for lines in said.notes:
        text += ".PP\n" if len(lines) == 1 else ".PP\n.nf\n"
        text += "\n".join(roff(line) for line in lines) + "\n"
        text += "" if len(lines) == 1 else ".fi\n"
    return text


def options_of(said):
    names = {"--help"}
    for _, entries in said.blocks:
        for entry, _ in entries:
            names.update(re.findall(r"(?<![\w-])--?[a-z][\w-]*", entry.split("  ")[0]))
    return sorted(name for name in names if name.startswith("--"))


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    folder, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    date = sys.argv[3] if len(sys.argv) == 4 else ""
    for sub in ("man1", "man8", "completions"):
        (out / sub).mkdir(parents=True, exist_ok=True)

    def ask(*words):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("C4")}
        done = subprocess.run([folder / words[0], *words[1:]], capture_output=True, text=True, check=False, timeout=60,
                              env=environment, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"manuals.py: {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    version = ask("c4", "--version").split()[1]
    words = {}  # "": the verbs; "smon": its verbs; "smon show": its options
    listed = Help("c4: verbs\n\n" + ask("c4", "--help"), VERBS)
    verbs = listed.blocks[0][1]
    words[""] = [verb for verb, _ in verbs] + ["--help", "--version"]
    summaries = {}
    for verb, _ in verbs:
        said = Help(ask("c4", verb, "--help"), OURS)
        summaries[verb] = said.summary
        parts = [f".SH SYNOPSIS\n.B {roff(said.usage)}\n"]
        if re.match(rf"c4 {verb} \[?VERB", said.usage):
            inner = [(word.split()[0], what) for word, what in said.blocks[0][1] if not word.startswith("(")]
            words[verb] = [word for word, _ in inner] + ["--help"]
            parts.append(".SH VERBS\n")
            for word, _ in inner:
                of_word = Help(ask("c4", verb, word, "--help"), OURS)
                words[f"{verb} {word}"] = options_of(of_word)
                parts.append(f".SS {roff(f'c4 {verb} {word}')}\n{roff(of_word.summary)}\n.PP\n.B {roff(of_word.usage)}\n")
                parts.append(blocks(of_word, ".PP\n.I"))
        else:
            words[verb] = options_of(said)
            parts.append(blocks(said))
        parts.append(".SH SEE ALSO\n.BR c4 (1)\n")
        if verb != "install":  # c4-install, the program, is the same
            name = f"c4-{verb}"
            (out / "man1" / f"{name}.1").write_text(page(name, 1, date, version, said.summary, parts), encoding="utf-8")

    parts = [".SH SYNOPSIS\n.B c4\nVERB [OPTIONS]\n.SH VERBS\n"]
    for verb, summary in summaries.items():
        parts.append(f".TP\n.BR {roff(f'c4-{verb}')} (1)\n{roff(summary)}\n")
    parts.append(".SH EXIT STATUS\n0: done; 1: it failed, and a sentence on standard error says why; 64: the command line "
                 "cannot be understood. Verbs that judge have others: docs/exit\\-codes.md.\n")
    parts.append(".SH SEE ALSO\n.BR c4\\-install (1),\n.BR c4a (8),\n.BR c4d_master (8),\n.BR c4p_master (8)\n")
    (out / "man1" / "c4.1").write_text(
        page("c4", 1, date, version, "say which rank, node, NIC or link holds a training job up", parts), encoding="utf-8")

    text = ask("c4-install", "--help")
    said = Help(text, OURS)
    image = {"": options_of(said) + ["doctor", "env"]}
    for word in ("doctor", "env"):
        image[word] = options_of(Help(ask("c4-install", word, "--help"), OURS))
    parts = [f".SH SYNOPSIS\n.B {roff(said.usage)}\n", blocks(said), ".SH SEE ALSO\n.BR c4 (1)\n"]
    (out / "man1" / "c4-install.1").write_text(page("c4-install", 1, date, version, said.summary, parts), encoding="utf-8")

    for daemon, summary in DAEMONS.items():
        if not (folder / daemon).exists():
            continue
        said = Help(ask(daemon, "--help"), CLI11)
        parts = [f".SH SYNOPSIS\n.B {roff(said.usage)}\n.SH DESCRIPTION\n{roff(said.summary)}\n", blocks(said),
                 ".SH SEE ALSO\n.BR c4 (1)\n"]
        (out / "man8" / f"{daemon}.8").write_text(page(daemon, 8, date, version, summary, parts), encoding="utf-8")
    if (folder / "c4-validate-worker").exists():
        text = ask("c4-validate-worker", "--help")
        usage, _, rest = text.partition("\n")
        parts = [f".SH SYNOPSIS\n.B {roff(usage.split(': ', 1)[1])}\n.SH DESCRIPTION\n{roff(rest.strip())}\n"]
        (out / "man8" / "c4-validate-worker.8").write_text(
            page("c4-validate-worker", 8, date, version, "test a device and its links for C4's agent", parts),
            encoding="utf-8")

    (out / "completions" / "c4").write_text(completion("c4", words), encoding="utf-8")
    (out / "completions" / "c4-install").write_text(completion("c4-install", image), encoding="utf-8")


def completion(program, words):
    name = "_" + program.replace("-", "_")
    cases = "".join(f'    "{verb}") words="{" ".join(offered)}" ;;\n' for verb, offered in words.items())
    return f"""# bash completion of {program}; made by scripts/manuals.py of what its --help says.
{name}()
{{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb="" words="" i
  # The verb, and of a verb that has verbs of its own its word; what follows `--` is another program's.
  for ((i = 1; i < COMP_CWORD && i < 3; i++)); do
    case ${{COMP_WORDS[i]}} in
      --) break ;;
      -*) break ;;
    esac
    verb="${{verb:+$verb }}${{COMP_WORDS[i]}}"
  done
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${{COMP_WORDS[i]}}" = -- ]; then
      COMPREPLY=()
      return
    fi
  done
  case $verb in
{cases}    *)
      case ${{verb%% *}} in
{"".join(f'        "{verb}") words="{" ".join(offered)}" ;;' + chr(10) for verb, offered in words.items() if verb and " " not in verb)}      esac
      ;;
  esac
  # shellcheck disable=SC2207 # words without blanks
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F {name} {program}
"""


if __name__ == "__main__":
    main()
