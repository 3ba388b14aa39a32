#!/usr/bin/env bash
# Settings of [optim] that do not fit together, one row each. usage: test_bad_optim.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"
# optim LINE...: a section of these lines
optim() { echo '[optim]' >>job.toml; printf '%s\n' "$@" >>job.toml; }

row 'an optimizer that nobody knows' 78 'E0207|job.toml|adam_mini_8bit' 'optim "name = \"adamx\""'
row 'an optimizer of Hugging Face that is not here' 78 'E0207|adafactor|paged_lion_8bit' 'optim "name = \"adafactor\""'
row 'a name that is nearly one' 78 'E0207|did you mean "adamw_8bit"?' 'optim "name = \"adamw8bit\""'
row 'a name that is nearly one of Hugging Face' 78 'E0207|did you mean "adamw_torch_fused"?' 'optim "name = \"adamw_torch_fusd\""'
row 'betas, which are two keys here' 78 'E0203|adam_beta1' : validate --job job.toml --set 'optim.betas=[0.9, 0.95]'
row 'one setting under two names, the other first' 78 'E0209|learning_rate|lr' \
    : validate --job job.toml --set optim.learning_rate=1e-4 --set optim.lr=1e-3
row '8-bit states by name and fp32 by type' 78 'E0213|remove one of the two' \
    'optim "name = \"adamw_8bit\"" "state_dtype = \"fp32\""'
row '8-bit states by type' 78 'E0213|name = "lion_8bit"' 'optim "name = \"lion\"" "state_dtype = \"8bit\""'
row 'bf16 states of Lion' 78 'E0213|adamw' 'optim "name = \"lion\"" "state_dtype = \"bf16\""'
row 'states of a type that is none' 78 'E0207|fp32 | bf16' 'optim "state_dtype = \"int8\""'
row 'a momentum of AdamW' 78 'E0213|momentum' 'optim "momentum = 0.9"'
row 'a momentum of 1' 78 'E0206|momentum' 'optim "name = \"sgd\"" "momentum = 1"'
row 'a momentum below 0' 78 'E0206|momentum' 'optim "name = \"sgd\"" "momentum = -0.1"'
row 'betas of SGD' 78 'E0213|adam_beta1' 'optim "name = \"sgd\"" "adam_beta1 = 0.9"'
row 'an epsilon of Lion' 78 'E0213|adam_epsilon' 'optim "name = \"lion\"" "adam_epsilon = 1e-6"'
row 'no masters in fp32' 78 'E0213|master|already' 'optim "master = \"none\""'
row 'masters of bf16' 78 'E0207|fp32 | none' 'optim "master = \"bf16\""'
row 'stable_embedding that is a number' 78 'E0205|true | false' 'optim "stable_embedding = 1"'
done_rows
