#!/usr/bin/env bash
# Jobs whose keys do not go together, one row each. usage: test_bad_job.sh ZEROD SOURCE
. "$(dirname "$0")/bad_input.sh"

# fp16 [LINE]...: the job computes in fp16, with these lines in [train.fp16]
fp16() {
    sed -i 's/^dtype = "fp32"$/dtype = "fp16"/; /^path = "model"$/{n;s/fp16/fp32/}' job.toml
    echo '[train.fp16]' >>job.toml
    for line; do echo "$line" >>job.toml; done
}

# --- loss scale ---
row 'a loss scale without fp16' 78 'E0213|job.toml|train.fp16.loss_scale|fp32' 'printf "[train.fp16]\nloss_scale = 128\n" >>job.toml'
row 'a loss scale without fp16, by --set' 78 'E0213|--set|train.fp16.hysteresis' ':' --job job.toml --set train.fp16.hysteresis=2
row 'a negative loss scale' 78 'E0206|loss_scale' 'fp16 "loss_scale = -1"'
row 'a first loss scale above all' 78 'E0206|from 0 to 32' 'fp16 "initial_scale_power = 33"'
row 'a first loss scale below the smallest' 78 'E0213|2^3|min_loss_scale = 16' 'fp16 "initial_scale_power = 3" "min_loss_scale = 16"'
row 'an unknown key of the loss scale' 78 'E0203|did you mean `hysteresis`' 'fp16 "hysterisis = 2"'

done_rows
