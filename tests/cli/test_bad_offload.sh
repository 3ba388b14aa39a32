#!/usr/bin/env bash
# Offload that cannot be had here: one error each, before anything is written. See bad_input.sh.
source "$(dirname "$0")/bad_input.sh"

# offload LINE...: its section of the job; the folder `disk` is there
offload() {
    mkdir disk
    { echo '[offload]'; printf '%s\n' "$@"; } >>job.toml
}
nvme='offload "optimizer = \"nvme\"" "nvme_path = \"disk\""'

# --- the folder ---
row 'NVMe without a folder' 78 'E0655|needs a folder|nvme_path = |job.toml' 'offload "optimizer = \"nvme\""'
row 'validate: NVMe without a folder' 78 'E0655|job.toml' 'offload "optimizer = \"nvme\""' validate --job job.toml
row 'plan: NVMe without a folder' 78 'E0655|job.toml' 'offload "optimizer = \"nvme\""' plan --job job.toml --world 2
row 'a folder that does not exist' 66 'E0656|no such folder|disk|mkdir' "$nvme; rm -r disk"
row 'a folder that is a file' 73 'E0656|not a folder|disk' "$nvme; rm -r disk; echo >disk"
row 'a link that leads nowhere' 66 'E0656|no such folder|disk' "$nvme; rmdir disk; ln -s nowhere disk"
# where nobody may write: not even root may below /proc, and nothing is free there
if [ "$(id -u)" = 0 ]; then
    row 'a disk that is full' 69 'E0657|MiB on disk|0.0 MiB are free|larger disk' 'offload "optimizer = \"nvme\"" "nvme_path = \"/proc\""'
else
    row 'a folder that may not be written to' 77 'E0656|ermission denied|disk' "$nvme; chmod 500 disk"
fi
row 'a file larger than files may be' 69 'E0658|ulimit -f unlimited' "$nvme; ulimit -S -f 64"
ulimit -S -f unlimited

# --- settings that do not go together ---
row 'parameters on NVMe, states not' 78 'E0651|params|job.toml' 'offload "optimizer = \"cpu\"" "params = \"nvme\"" "nvme_path = \"disk\""'
row 'an update from NVMe that could be undone' 78 'E0650|undo|wait' "$nvme; echo 'clipping = \"undo\"' >>job.toml"
row 'parameters away from the device, more ranks than one, no stage 3' 78 'E0661|zero.stage|params' \
    'offload "optimizer = \"cpu\"" "params = \"cpu\""; printf "[zero]\nstage = 1\n" >>job.toml' plan --job job.toml --world 2
row 'validate: the same, with its line' 78 'E0661|zero.stage|job.toml:20|params' \
    'offload "optimizer = \"cpu\"" "params = \"cpu\""; printf "[zero]\nstage = 1\n" >>job.toml' validate --job job.toml --world 2
row 'parameters away from the device, the optimizer on it' 78 'E0660|params|optimizer = |job.toml' 'offload "params = \"cpu\""'
row 'micro-batches added up on the host by ranks that have all states' 78 'E0662|accumulate|zero.stage = 1' \
    'offload "optimizer = \"cpu\"" "accumulate = \"host\""; printf "[zero]\nstage = 0\n" >>job.toml' \
    plan --job job.toml --world 2 --set train.global_batch_size=4 --set train.gradient_accumulation_steps=2
row 'validate: the same, with its line' 78 'E0662|accumulate|job.toml:20|zero.stage = 1' \
    'offload "optimizer = \"cpu\"" "accumulate = \"host\""; printf "[zero]\nstage = 0\n" >>job.toml' \
    validate --job job.toml --world 2 --set train.global_batch_size=4 --set train.gradient_accumulation_steps=2
row 'sums by layer and on the host' 78 'E0663|accumulation_order|depth_first' \
    'offload "optimizer = \"cpu\"" "accumulate = \"host\""' validate --job job.toml --set train.accumulation_order=breadth_first
row 'validate: an update from NVMe that could be undone' 78 'E0650|job.toml:21|clipping = "wait"' \
    "$nvme; echo 'clipping = \"undo\"' >>job.toml" validate --job job.toml
row 'validate: an update of Adam-mini that could be undone' 78 'E0650|job.toml:20|Adam-mini' \
    'offload "optimizer = \"cpu\"" "clipping = \"undo\""' validate --job job.toml --set optim.name=adam_mini
row 'validate: an update from NVMe that is shared' 78 'E0650|job.toml:21|disk|device_update = 0 ' \
    "$nvme; echo 'device_update = 0.5' >>job.toml" validate --job job.toml
row 'validate: an update of Adam-mini that is shared' 78 'E0650|job.toml:20|Adam-mini' \
    'offload "optimizer = \"cpu\"" "device_update = 1"' validate --job job.toml --set optim.name=adam_mini
row 'more than an update' 78 'E0206|device_update|job.toml' 'offload "optimizer = \"cpu\"" "device_update = 1.5"'
row 'a share of an update that is not on the host' 78 'E0213|device_update|offload.optimizer|job.toml' 'offload "device_update = 0"'
row 'validate: a folder that does not exist' 66 'E0656|no such folder|job.toml:20' "$nvme; rm -r disk" validate --job job.toml
row 'validate: a folder that is a file' 73 'E0656|not a folder|job.toml:20' "$nvme; rm -r disk; echo >disk" validate --job job.toml
row 'threads for an update that is not on the host' 78 'E0213|threads|offload.optimizer|job.toml' 'offload "threads = 2"'
row 'undo where nothing is offloaded' 78 'E0213|clipping|job.toml' 'offload "clipping = \"undo\"" "optimizer = \"none\""'
row 'memory for old values where none are kept' 78 'E0213|undo_memory|clipping = "undo"|job.toml' 'offload "optimizer = \"cpu\"" "undo_memory = 0"'
row 'blocks shorter than a page' 78 'E0206|block_size|job.toml' 'printf "[aio]\nblock_size = 512\n" >>job.toml'
row 'a queue of nothing' 78 'E0206|queue_depth|job.toml' 'printf "[aio]\nqueue_depth = 0\n" >>job.toml'
done_rows
