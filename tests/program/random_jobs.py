#!/usr/bin/env python3
"""random_jobs.py ZEROD LOCAL_RUN [--count N] [--seed S] [--only K] [--tight N]: random jobs on the CPU device. Prints TAP.

Of each job (family, stage, world, mesh, types, optimizer, checkpointing, offload, adapters, batch, length, buckets), by a seed:
  what `zerod plan` says is what two steps take, to the byte, and they end with 0;
  with a limit below that it is either another job that fits ("auto", paged states) or refused, and then it is over the
  limit when it is forced; what a refusal suggests is accepted;
  what --fit finds is accepted, takes what it says, and runs within the limit.
With --tight limits are tighter, the job without them is not run, and N of the fits are run rather than one."""
import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from tiny import write_job  # noqa: E402

FAMILIES = ['gpt2', 'llama', 'mistral', 'qwen2', 'qwen3']
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../optim/optimizers.inc')) as table:
    OPTIMIZERS = ['adamw'] + re.findall(r'^OPTIM_WORD\("(\w+)"', table.read(), re.M)


def model(rng):
    heads = rng.choice([2, 4])
    hidden = heads * rng.choice([8, 16, 24])
    family, layers, vocab = rng.choice(FAMILIES), rng.randint(1, 5), rng.choice([61, 257, 400, 1024])
    vocab = max(vocab, 257)
    if family == 'gpt2':
        return {'model_type': 'gpt2', 'n_embd': hidden, 'n_layer': layers, 'n_head': heads, 'n_positions': 64, 'vocab_size': vocab}
    config = {'model_type': family, 'hidden_size': hidden, 'num_hidden_layers': layers, 'num_attention_heads': heads,
              'num_key_value_heads': rng.choice([heads, heads // 2]), 'intermediate_size': rng.choice([40, 64, 136]),
              'vocab_size': vocab, 'max_position_embeddings': 64, 'tie_word_embeddings': rng.random() < .5}
    if family == 'qwen3':
        config['head_dim'] = rng.choice([8, 16])
    if family == 'mistral':
        config['sliding_window'] = None
        del config['sliding_window']
    return config


def draw(rng):
    """{"section.key": value}, and how many ranks."""
    world = rng.choice([1, 1, 1, 2, 2, 3, 4, 5, 6, 8])
    job = {'zero.stage': rng.randint(0, 3), 'train.dtype': rng.choice(['bf16', 'bf16', 'fp32', 'fp16']),
           'optim.name': rng.choice(OPTIMIZERS), 'data.cutoff_len': rng.choice([8, 17, 32, 48]),
           'train.per_device_train_batch_size': rng.randint(1, 4), 'train.gradient_accumulation_steps': rng.choice([1, 1, 2, 3, 4]),
           'train.gradient_checkpointing': rng.choice(['none', 'full', 'sqrt', 'every:2', 'auto']),
           'train.tiled_mlp': rng.choice([1, 1, 2, 7, 'auto']),
           'device.streams': rng.choice(['auto', 'inline', 'threads'])}
    if rng.random() < .5:
        job['offload.optimizer'] = rng.choice(['cpu', 'cpu', 'nvme'])
        if job['offload.optimizer'] == 'nvme':
            job['offload.nvme_path'] = 'nvme'
        if rng.random() < .5 and (world == 1 or job['zero.stage'] == 3):
            job['offload.params'] = rng.choice(['cpu', job['offload.optimizer']])
        if rng.random() < .3:
            job['offload.accumulate'] = rng.choice(['device', 'host'])
        if rng.random() < .2:
            job['offload.clipping'] = 'undo'
        if rng.random() < .3:
            job['offload.chunk_bytes'] = rng.choice([4096, 65536])
    if rng.random() < .25 and job['train.gradient_checkpointing'] not in ('none', 'auto'):
        job['offload.activations'] = 'cpu'
    adapts = rng.random() < .3
    if adapts:
        job['lora.enabled'] = True
        job['lora.r'] = rng.choice([1, 3, 8])
        if rng.random() < .3:
            job['lora.lora_dropout'] = 0.1
        if rng.random() < .2:
            job['lora.use_rslora'] = True
        if rng.random() < .4:
            job['lora.quantize_base'] = rng.choice(['nf4', 'fp4', 'int8', 'fp8'])
    elif job['train.dtype'] == 'bf16' and rng.random() < .2:
        job['optim.master'] = 'none'
    if job['optim.name'] == 'adamw' and rng.random() < .2:
        job['optim.state_dtype'] = 'bf16'
    if rng.random() < .3:
        job['optim.stable_embedding'] = False
    for key, values in (('zero.prefetch_bucket_size', [1000, 200000]),
                        ('zero.overlap_comm', [False]),
                        ('comm.reduce_dtype', ['fp32', 'compute']), ('data.prefetch', [1, 4]), ('data.val_split', [0.1]),
                        ('eval.per_device_eval_batch_size', [1, 3]), ('checkpoint.async_save', [False]),
                        ('checkpoint.save_only_model', [True]), ('control.socket', ['none'])):
        if rng.random() < .25:
            job[key] = rng.choice(values)
    if rng.random() < .3:
        job['sample.prompts'] = ['The mill']
        job['sample.steps'] = 1
        job['sample.max_new_tokens'] = rng.choice([1, 12])
    job['checkpoint.save_strategy'] = rng.choice(['no', 'steps'])
    job['checkpoint.export'] = rng.choice(['none', 'peft' if adapts else 'hf'])
    if world > 1 and rng.random() < .5:
        job['parallel.dp_replicate_size'] = rng.choice([n for n in range(2, world + 1) if world % n == 0])
    return job, world


class Fault(Exception):
    pass


class Runner:
    def __init__(self, zerod, local_run, folder):
        self.zerod, self.local_run, self.folder = zerod, local_run, folder
        self.environment = dict(os.environ, OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='', XDG_RUNTIME_DIR=folder)

    def call(self, arguments, where):
        done = subprocess.run(arguments, cwd=where, env=self.environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def plan(self, where, world, *words):
        arguments = [self.zerod, 'plan', '--job', 'job.toml', '--world', str(world), '--per-node', str(world),
                     '--format', 'json', *words]
        code, out, err = self.call(arguments, where)
        return code, json.loads(out) if out else None, err

    def run(self, where, world, sets, force=False):
        """plan.json of two steps; the bytes that a rank takes are those that it planned."""
        for name in ('out', 'nvme'):
            shutil.rmtree(os.path.join(where, name), ignore_errors=True)
        os.mkdir(os.path.join(where, 'nvme'))
        if world == 1:
            arguments = [self.zerod, '--job', 'job.toml', '-q'] + (['--force'] if force else [])
            for each in sets:
                arguments += ['--set', each]
        else:
            arguments = [self.local_run, 'job.toml', str(world), '.', *sets] + (['--force'] if force else [])
        code, _, err = self.call(arguments, where)
        if force and code == 69:
            return None
        if code != 0:
            raise Fault(f'the run ends with {code}: {" ".join(arguments[1:])}\n{err}')
        plan = json.load(open(os.path.join(where, 'out', 'plan.json')))
        for rank in plan['ranks']:
            for arena in rank['arenas']:
                if arena['name'] != 'disk' and arena['planned_bytes'] != arena['taken_bytes']:
                    raise Fault(f'planned and taken differ: {arena["name"]} {arena["planned_bytes"]} {arena["taken_bytes"]}')
        return plan


def planned(plan):
    bytes_ = {arena['name']: arena['planned_bytes'] for arena in plan['ranks'][0]['arenas']}
    bytes_['host'] += bytes_['pinned']
    return bytes_


def same(told, plan, what):
    took = planned(plan)
    for key in told:
        if told[key] != took[key]:
            raise Fault(f'{what}: {key} {told[key]} was told, {took[key]} is taken')


def words_of(sets):
    return [word for each in sets for word in ('--set', each)]


def sets_of(arguments):
    return re.findall(r'--set (\S+)', arguments)


def limits_of(rng, plan, tight):
    """Below what the job needs, of the device or of the host; it can do without the background copy."""
    took = planned(plan)
    took['host'] -= plan['snapshot']['bytes']
    kind = rng.choice(['device', 'device', 'host'])
    share = rng.choice([.9, .75, .6, .4] if tight else [.98, .9, .8, .5])
    if took[kind] < 10000:
        kind = 'device'
    limit = {'device': took['device'] * 4, 'host': took['host'] * 8 + (64 << 20)}
    limit[kind] = int(took[kind] * share)
    return [f'device.memory_limit={limit["device"]}', f'device.host_memory_limit={limit["host"]}'], limit


def check_refused(runner, where, world, limits, limit, err):
    for line in re.findall(r'^ *(?:= help: )?(--set .*?)   \(', err, re.M):
        code, _, why = runner.plan(where, world, *words_of(limits), *words_of(sets_of(line)))
        if code != 0:
            raise Fault(f'a refusal suggests what is refused ({code}): {line}\n{why}')
    forced = runner.run(where, world, limits, force=True)
    if forced is None:  # memory was not there
        return
    arenas = {arena['name']: arena['taken_bytes'] for arena in forced['ranks'][0]['arenas']}
    if arenas['device'] <= limit['device'] and arenas['host'] + arenas['pinned'] <= limit['host']:
        raise Fault(f'refused, and within its limits when forced: {arenas} {limit}')
    if not forced.get('forced') or not any(each['over'] for each in forced['limits'].values()):
        raise Fault('a forced run does not say by how much it is over')


def check_machines(runner, where, world, err):
    """Nothing fits: each machine that is named would do."""
    machines = re.findall(r'([0-9.]+ .iB) of device memory and ([0-9.]+ .iB) of host memory, with (.*?)(?=; or |$)', err, re.M)
    if 'the smallest machine that would do' not in err or not machines:
        raise Fault(f'nothing fits, and no machine is named\n{err}')
    for device, host, words in machines:
        code, _, why = runner.plan(where, world, '--device-memory', device.replace(' ', ''), '--host-memory', host.replace(' ', ''),
                                   *words_of(sets_of(words)))
        if code != 0:
            raise Fault(f'a machine that is named would not do ({code}): {device} {host} {words}\n{why}')


def check_fits(runner, rng, where, world, limits, limit, runs):
    allow = rng.choice(['', 'optim', 'optim,dtype', 'lora', 'optim,lora', 'optim,lora,quantize'])
    words = [*words_of(limits), '--fit'] + (['--allow', allow] if allow else [])
    code, found, err = runner.plan(where, world, *words)
    if code == 69:
        check_machines(runner, where, world, err)
        return 'none'
    if code != 0:
        raise Fault(f'plan --fit ends with {code}\n{err}')
    fits = found['fits']
    chosen = [fits[0]] + rng.sample(fits[1:], min(max(2, runs - 1), len(fits) - 1))
    for number, each in enumerate(chosen):
        sets = sets_of(each['arguments'])
        code, plan, err = runner.plan(where, world, *words_of(limits), *words_of(sets))
        if code != 0:
            raise Fault(f'a fit is refused ({code}): {sets}\n{err}')
        told = {memory: each['bytes'][memory] for memory in ('device', 'host', 'pinned', 'disk')}
        same(told, plan, f'fit {sets}')
        if number >= len(chosen) - runs:
            ran = runner.run(where, world, limits + sets)
            same(told, ran, f'a fit that ran {sets}')
            if planned(ran)['device'] > limit['device'] or planned(ran)['host'] > limit['host']:
                raise Fault('a fit takes more than its limits')
    return f'{len(fits)} fits'


def one(runner, seed, number, tight):
    """A line on what came of it."""
    rng = random.Random(f'{seed}/{number}')
    where = os.path.join(runner.folder, f'job-{number}')
    os.mkdir(where)
    for _ in range(40):
        job, world = draw(rng)
        config = model(rng)
        write_job(os.path.join(where, 'job.toml'), config, {**job, 'train.max_steps': 2, 'device.cpu_threads': 1, 'checkpoint.save_steps': 1})
        code, plan, err = runner.plan(where, world)
        if code == 0:
            break
        if code != 78:
            raise Fault(f'plan ends with {code}\n{err}')
    else:
        raise Fault(f'no sound job in 40 draws\n{err}')
    if not tight:
        same(planned(plan), runner.run(where, world, []), 'the run')
    limits, limit = limits_of(rng, plan, tight)
    code, other, err = runner.plan(where, world, *words_of(limits))
    if code == 69:
        check_refused(runner, where, world, limits, limit, err)
        fits = check_fits(runner, rng, where, world, limits, limit, tight or 1)
        outcome = f'refused, {fits}'
    elif code == 0:
        same(planned(other), runner.run(where, world, limits), 'what fits by itself')
        outcome = 'fits by itself'
    else:
        raise Fault(f'plan with limits ends with {code}\n{err}')
    shutil.rmtree(where)
    return f'{config["model_type"]} x {world}, stage {job["zero.stage"]}, {job["optim.name"]}: {outcome}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('zerod')
    parser.add_argument('local_run')
    parser.add_argument('--count', type=int, default=12)
    parser.add_argument('--seed', default='1')
    parser.add_argument('--only', type=int)
    parser.add_argument('--tight', type=int, default=0)
    asked = parser.parse_args()
    numbers = [asked.only] if asked.only is not None else range(asked.count)
    folder = tempfile.mkdtemp(prefix='zerod-')
    bad = 0
    with open(os.path.join(folder, 'data.txt'), 'w') as file:
        for i in range(120):
            file.write(f"The miller's daughter kept the accounts of the mill better than her father had, line {i}.\n")
    runner = Runner(os.path.realpath(asked.zerod), os.path.realpath(asked.local_run), folder)
    for number in numbers:
        try:
            line, word = one(runner, asked.seed, number, asked.tight), 'ok'
        except (Fault, subprocess.TimeoutExpired) as fault:
            bad += 1
            print(''.join(f'# {text}\n' for text in str(fault).splitlines()), end='')
            line, word = f'job {number} of seed {asked.seed}', 'not ok'
            if asked.only is not None:
                print(f'# in {folder}')
                print('# ' + open(os.path.join(folder, f'job-{number}', 'job.toml')).read().replace('\n', '\n# '))
        print(f'{word} {number + 1} - {line}', flush=True)
    print(f'1..{len(numbers)}')
    if asked.only is None:
        shutil.rmtree(folder)
    return 1 if bad else 0


sys.exit(main())
