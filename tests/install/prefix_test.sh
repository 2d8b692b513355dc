#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a prefix and moves it; what it holds does not lead back to where it was built.
#   prefix_test.sh CMAKE BUILD_FOLDER WORK_FOLDER      leaves the prefix in WORK_FOLDER/moved
set -uo pipefail
# shellcheck source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cmake=$1
build=$(cd "$2" && pwd -P)
mkdir -p "$3"
work=$(cd "$3" && pwd -P)
rm -rf "$work/made" "$work/moved"

holds "it installs" "$cmake" --install "$build" --prefix "$work/made"
mv "$work/made" "$work/moved"
cd "$work/moved" || exit 1

version=$(basename "$(ls share/modulefiles/finetune/*.lua)" .lua)
for file in bin/finetune "share/modulefiles/finetune/$version" \
  share/finetune/inputs/{quickstart,reference,recipes/llama-3.1-8b-full-1x8}.toml \
  share/finetune/inputs/quickstart/{train.json,held_out.json,model/model.safetensors} \
  share/finetune/jobscripts/{slurm/train.sh,pbs/train.sh,env/site.sh} \
  share/finetune/modules/templates/llama3.jinja \
  share/doc/finetune/{README.md,app/LICENSE,app/README.md,inputs/README.md,inputs/recipes/README.md} \
  share/doc/finetune/{jobscripts,modules,spack,src,src/checkpoint,tests,tests/bench}/README.md \
  share/doc/finetune/.github/{CHANGELOG,CONTRIBUTING,SECURITY}.md; do
  expect "$file is there" yes "$([ -s "$file" ] && echo yes)"
done
expect "what only the sources can use is not there" "" \
  "$(find . -name generator -o -name '*.cpp' -o -name CMakeLists.txt -o -name setup.sh -o -name .gitignore)"
holds "links between the documents lead somewhere" "$cmake" -DROOT="$PWD/share/doc/finetune" \
  -DDECKS="$PWD/share/finetune" -P "$here/../style/documents.cmake"
expect "jobscripts can be started" "" "$(find share/finetune/jobscripts -name train.sh ! -perm -111)"
expect "nothing else is there" "" "$(find . -mindepth 1 -maxdepth 1 ! -name bin ! -name lib ! -name share)"

# Where libraries come from: the prefix itself, or a folder outside the build folder.
holds "all libraries are found" ldd bin/finetune
expect "none is missing" "" "$(grep 'not found' <<<"$said")"
if grep -q '^FINETUNE_INSTALL_LIBTORCH:[A-Z]*=OFF' "$build/CMakeCache.txt"; then
  said=$(grep -v torch <<<"$said")
fi
expect "none is the build folder's" "" "$(grep -F "$build/" <<<"$said" | grep -vF "$work/moved/bin/../lib/finetune/")"
if [ -d lib/finetune ]; then
  expect "libtorch is the prefix's" "$work/moved/bin/../lib/finetune/libtorch_cpu.so" \
    "$(awk '$1 == "libtorch_cpu.so" { print $3 }' <<<"$said")"
fi
finish
