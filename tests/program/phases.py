#!/usr/bin/env python3
"""What a plan says of each phase, held against runs on one rank: the files that they leave, and their resident memory.

    phases.py ZEROD [--large N]      prints TAP; N jobs of 1 GB or more each, by --seed, for their resident memory alone
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from tiny import write_job  # noqa: E402

MODEL = {'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 4, 'num_attention_heads': 4, 'intermediate_size': 256,
         'vocab_size': 2048, 'max_position_embeddings': 64, 'tie_word_embeddings': False}
BASE = {'train.max_steps': 2, 'train.per_device_train_batch_size': 2, 'data.cutoff_len': 32, 'checkpoint.save_steps': 2,
        'checkpoint.async_save': False, 'device.cpu_threads': 1, 'control.socket': 'none'}
JOBS = {
    'AdamW': {},
    'fp32': {'train.dtype': 'fp32'},
    'states in 8 bits': {'optim.name': 'adamw_8bit'},
    'Adam-mini': {'optim.name': 'adam_mini'},
    'SGD without masters': {'optim.name': 'sgd', 'optim.master': 'none'},
    'a copy for the background': {'checkpoint.async_save': True},
    'weights alone': {'checkpoint.save_only_model': True},
    'frozen tensors': {'train.freeze': ['model.layers.0.*', 'model.embed_tokens.weight']},
    'adapters': {'lora.enabled': True, 'checkpoint.export': 'peft'},
    'adapters in bf16': {'lora.enabled': True, 'checkpoint.export': 'peft', 'model.dtype': 'bf16'},
    'adapters, merged': {'lora.enabled': True, 'checkpoint.export': 'hf'},
    'on the host': {'offload.optimizer': 'cpu'},
    'on disk': {'offload.optimizer': 'nvme', 'offload.nvme_path': '.'},
}
HEADERS = 128 << 10  # of safetensors, and what lies between arrays
MISS = 60 << 20


def run(zerod, where):
    """plan.json, and the most that was resident, in bytes."""
    environment = dict(os.environ, OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='', XDG_RUNTIME_DIR=where)
    with open(os.path.join(where, 'said'), 'w') as said:
        child = subprocess.Popen([zerod, '--job', 'job.toml', '-q'], cwd=where, env=environment, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        return None, open(os.path.join(where, 'said')).read()
    return json.load(open(os.path.join(where, 'out', 'plan.json'))), usage.ru_maxrss * 1024


def bytes_of(folder, ending):
    return sum(os.path.getsize(os.path.join(top, name)) for top, _, names in os.walk(folder) for name in names if name.endswith(ending))


def faults_of_files(plan, out):
    last = os.path.join(out, 'checkpoint-000002')
    took = {'save': bytes_of(last, '.safetensors')}
    for name in ('hf', 'peft'):
        if os.path.isdir(os.path.join(out, name)):
            took['export'] = bytes_of(os.path.join(out, name), '.safetensors')
    told = {phase: plan['phases'][phase]['disk'] for phase in ('save', 'export')}
    return [f'{phase}: {told[phase]} bytes of files are told, {took.get(phase, 0)} are there' for phase in told
            if not told[phase] <= took.get(phase, 0) <= told[phase] + HEADERS]


def faults_of_memory(plan, resident, both):
    """Of the phase with the most; both: nor is there more than it needs."""
    most = max(peak['device'] + peak['pinned'] + peak['host'] for name, peak in plan['phases'].items() if name != 'libraries')
    limit = most + plan['phases']['libraries']['host']
    print(f'# told {most >> 20} MiB and libraries, resident {resident >> 20} MiB')
    if resident > limit * 1.02:
        return [f'{resident} bytes are resident, {limit} are told with libraries']
    if both and resident < most * 0.98 - MISS:
        return [f'{resident} bytes are resident, {most} are told']
    return []


def draw(rng):
    """A job of 1 to 1.6 GB."""
    hidden = rng.choice([256, 384, 512])
    config = dict(MODEL, hidden_size=hidden, num_attention_heads=8, intermediate_size=3 * hidden, num_hidden_layers=rng.randint(2, 6),
                  vocab_size=rng.choice([8000, 16000, 32000]))
    job = dict(BASE, **{'checkpoint.save_steps': 1, 'data.cutoff_len': 64, 'checkpoint.export': 'none', 'checkpoint.timeout': '600s',
                        'train.dtype': rng.choice(['bf16', 'fp32']), 'optim.name': rng.choice(['adamw', 'adamw', 'adamw_8bit', 'lion']),
                        'checkpoint.async_save': rng.random() < .5,
                        'train.gradient_checkpointing': rng.choice(['none', 'selective', 'full']),
                        'train.per_device_train_batch_size': rng.choice([8, 16, 24])})
    if rng.random() < .3:
        job['offload.optimizer'] = 'cpu'
        job['checkpoint.async_save'] = False  # of its copy as much is used as updates come before the writer
    return config, job


def planned(zerod, where):
    environment = dict(os.environ, OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='')
    done = subprocess.run([zerod, 'plan', '--job', 'job.toml', '--world', '1', '--format', 'json'], cwd=where, env=environment,
                          capture_output=True, text=True)
    if done.returncode:
        return 0
    peak = json.loads(done.stdout)['phases']['train']
    return peak['device'] + peak['pinned'] + peak['host']


def large(zerod, where, rng):
    for _ in range(200):
        config, job = draw(rng)
        write_job(os.path.join(where, 'job.toml'), config, job)
        if 1 << 30 <= planned(zerod, where) <= 1.6 * (1 << 30):
            break
    plan, resident = run(zerod, where)
    name = f'{job["optim.name"]}, {job["train.dtype"]}, {job["train.gradient_checkpointing"]}'
    return name, [resident] if plan is None else faults_of_memory(plan, resident, True)


def small(zerod, where, name):
    write_job(os.path.join(where, 'job.toml'), MODEL, {**BASE, **JOBS[name]})
    plan, resident = run(zerod, where)
    if plan is None:
        return name, [resident]
    return name, faults_of_files(plan, os.path.join(where, 'out')) + faults_of_memory(plan, resident, False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('zerod')
    parser.add_argument('--large', type=int, default=0)
    parser.add_argument('--seed', default='1')
    asked = parser.parse_args()
    zerod, folder = os.path.realpath(asked.zerod), tempfile.mkdtemp(prefix='zerod-')
    with open(os.path.join(folder, 'data.txt'), 'w') as file:
        for i in range(400):
            file.write(f"The miller's daughter kept the accounts of the mill better than her father had, line {i}.\n")
    works = [(large, random.Random(f'{asked.seed}/{i}')) for i in range(asked.large)] or [(small, name) for name in JOBS]
    bad = 0
    for number, (work, what) in enumerate(works, 1):
        where = os.path.join(folder, str(number))
        os.mkdir(where)
        name, faults = work(zerod, where, what)
        for fault in faults:
            print('# ' + fault.replace('\n', '\n# '))
        bad += bool(faults)
        print(f'{"not ok" if faults else "ok"} {number} - {name}', flush=True)
        shutil.rmtree(where)
    print(f'1..{len(works)}')
    shutil.rmtree(folder)
    return 1 if bad else 0


sys.exit(main())
