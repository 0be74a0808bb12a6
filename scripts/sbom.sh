#!/usr/bin/env bash
# sbom.sh: the bill of materials of the release build into build/c4.cdx.json (CycloneDX): our programs, and Debian's
# packages that they load or are compiled from. Packages that differ from scripts/packages.lock are named.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python3 "$C4_ROOT/scripts/sbom.py" "$C4_ROOT/build" > "$C4_ROOT/build/c4.cdx.json"
say "the bill of materials: $C4_ROOT/build/c4.cdx.json"
