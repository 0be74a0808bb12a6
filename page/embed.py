"""Writes the files of the operator's page, compressed, as constants of C++ (page/page_files.h).

embed.py --from DIR --out FILE. Without a page in DIR (no npm, no network: docs/page.md) the table is empty. The
output is touched only when it changes.
"""

import argparse
import gzip
import hashlib
import pathlib

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".png": "image/png",
}


def pages_of(folder):
    """What is served, as (path, file): the page itself and its assets, whose names change with their content."""
    index = folder / "index.html"
    if not index.is_file():
        return []
    assets = sorted(p for p in (folder / "assets").glob("*") if p.suffix in TYPES)
    return [("/", index)] + [(f"/assets/{p.name}", p) for p in assets]


def source_of(folder):
    rows, arrays = [], []
    for number, (path, file) in enumerate(pages_of(folder)):
        content = file.read_bytes()
        packed = gzip.compress(content, 9, mtime=0)
        numbers = ",".join(str(b) for b in packed)
        arrays.append(f"const unsigned char kFile{number}[] = {{{numbers}}};\n")
        tag = hashlib.sha256(content).hexdigest()[:16]
        rows.append(f'    {{"{path}", "{TYPES[file.suffix]}", "{tag}", {len(content)}, '
                    f"{{reinterpret_cast<const char*>(kFile{number}), sizeof kFile{number}}}}},\n")
    return ("// Made by page/embed.py.\n#include <vector>\n\n#include \"page/page_files.h\"\n\n"
            "namespace c4::page {\nnamespace {\n\n" + "".join(arrays) + "\n}  // namespace\n\n"
            "const std::vector<PageFile>& PageFiles() {\n  static const std::vector<PageFile> files = {\n"
            + "".join(rows) + "  };\n  return files;\n}\n\n}  // namespace c4::page\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="folder", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    text = source_of(arguments.folder)
    if not arguments.out.exists() or arguments.out.read_text() != text:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
