#!/usr/bin/env bash
# What an export would fail over at the end is found before step 1, one row each. usage: test_lost_model.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"
table "$2/tests/cli/bad/lost_model.txt"

# A run that goes on needs the weights of its model no more, and exports tensors under the names that it has read: those of a
# GPT-2 without "transformer." were lost with its folder.
rm -rf "$dir/work" && cp -r "$dir/sound" "$dir/work" && cd "$dir/work" && rm -r out model && cp -r "$fixtures/gpt2/model" . || exit 99
header model/model.safetensors 's/transformer[.]//g'
first=0 second=0
"$zerod" --job job.toml --stop-after 1 >err 2>&1 || first=$?
rm model/model.safetensors
"$zerod" --job job.toml >>err 2>&1 || second=$?
names=$(grep -aoE '"(transformer[.])?wte.weight"' out/hf/model.safetensors)
ok 'tensors are exported under the names that were read, whatever became of them' [ "$first $second $names" = '0 0 "wte.weight"' ]
tests_end
