#!/usr/bin/env python3
"""Keys of other trainers with their defaults and one other value, for tests/cli/foreign_keys.py.

   foreign_keys.py FOLDER >tests/fixtures/init/keys.json

FOLDER holds the packages unpacked (pip download --no-deps; unzip, tar): axolotl 0.19.0, trl 1.16.0, transformers 5.24.0
and deepspeed-0.19.8. They are read with ast, so that neither they nor torch have to run."""
import ast
import json
import sys

root = sys.argv[1]


def literal(node):
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.Call):
        if getattr(node.func, 'id', '') == 'pp_int' and node.args:
            return literal(node.args[0])
        for keyword in node.keywords:
            if keyword.arg == 'default':
                return literal(keyword.value)
        return literal(node.args[0]) if node.args else ...
    return ...  # not a constant


def other(default, hint):
    """A value that is not the default."""
    if isinstance(default, bool) or (default is None and 'bool' in hint):
        return not default
    if isinstance(default, (int, float)):
        return default + 1 if isinstance(default, int) else default / 2 + 0.25
    if default is None and ('int' in hint or 'float' in hint):
        return 7 if 'int' in hint else 0.5
    if default is None and 'list' in hint.lower():
        return ['other']
    return 'other'


def fields(path, name):
    for node in ast.walk(ast.parse(open(f'{root}/{path}').read())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and item.value is not None:
                    default, hint = literal(item.value), ast.unparse(item.annotation)
                    if default is not ... and not item.target.id.startswith('_'):
                        yield item.target.id, default, other(default, hint)


def arguments(path, name):
    """Of the first __init__ of a class."""
    for node in ast.walk(ast.parse(open(f'{root}/{path}').read())):
        if isinstance(node, ast.ClassDef) and node.name == name:
            init = next(i for i in node.body if isinstance(i, ast.FunctionDef) and i.name == '__init__')
            for arg, default in zip(init.args.args[-len(init.args.defaults):], init.args.defaults):
                value = literal(default)
                if value is not ...:
                    yield arg.arg, list(value) if isinstance(value, tuple) else value, other(value, '')


def constants(path):
    """NAME = "key" and NAME_DEFAULT = value."""
    found = {}
    for node in ast.parse(open(f'{root}/{path}').read()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = literal(node.value)
    for name, key in found.items():
        default = found.get(name + '_DEFAULT', ...)
        if isinstance(key, str) and default is not ...:
            yield key, default, other(default, 'int' if 'BATCH' in name or 'STEPS' in name else '')


def table(*sources):
    keys = {}
    for prefix, source in sources:
        for name, default, another in source:
            keys[prefix + name] = [default, another]
    return keys


runtime = 'deepspeed-0.19.8/deepspeed/runtime'
top = {'seed', 'train_batch_size', 'train_micro_batch_size_per_gpu', 'gradient_accumulation_steps', 'steps_per_print',
       'gradient_clipping', 'communication_data_type', 'prescale_gradients', 'gradient_predivide_factor',
       'disable_allgather', 'dump_state', 'wall_clock_breakdown', 'memory_breakdown', 'sparse_gradients',
       'zero_allow_untested_optimizer', 'zero_force_ds_cpu_optimizer'}
axolotl = 'axolotl/axolotl/utils/schemas'
hf = table(('', fields('transformers/transformers/training_args.py', 'TrainingArguments')))
trl = {**hf, **table(('', fields('trl/trl/trainer/model_config.py', 'ModelConfig')),
                     ('', fields('trl/trl/trainer/base_config.py', '_BaseConfig')),
                     ('', fields('trl/trl/trainer/sft_config.py', 'SFTConfig')))}
json.dump({
    'deepspeed': {'given': {'optimizer': {'type': 'AdamW'}, 'scheduler': {'type': 'WarmupDecayLR'}},
                  'keys': table(('', (row for row in constants(f'{runtime}/constants.py') if row[0] in top)),
                                ('fp16.', fields(f'{runtime}/precision_config.py', 'DeepSpeedFP16Config')),
                                ('bf16.', fields(f'{runtime}/precision_config.py', 'DeepSpeedBF16Config')),
                                ('zero_optimization.', fields(f'{runtime}/zero/config.py', 'DeepSpeedZeroConfig')),
                                ('aio.', constants(f'{runtime}/swap_tensor/constants.py')),
                                ('optimizer.params.', arguments('deepspeed-0.19.8/deepspeed/ops/adam/fused_adam.py', 'FusedAdam')),
                                ('scheduler.params.', arguments(f'{runtime}/lr_schedules.py', 'WarmupDecayLR')))},
    'hf': {'given': {'output_dir': 'o'}, 'keys': hf},
    'hf-trl': {'given': {'output_dir': 'o', 'use_peft': True, 'load_in_4bit': True}, 'keys': trl},
    'axolotl': {'given': {'adapter': 'lora', 'learning_rate': 1e-4},
                'keys': table(('', fields(f'{axolotl}/config.py', 'AxolotlInputConfig')),
                              ('', fields(f'{axolotl}/training.py', 'HyperparametersConfig')),
                              ('', fields(f'{axolotl}/training.py', 'JaggedLRConfig')),
                              ('', fields(f'{axolotl}/model.py', 'ModelInputConfig')),
                              ('', fields(f'{axolotl}/model.py', 'ModelOutputConfig')),
                              ('', fields(f'{axolotl}/peft.py', 'LoraConfig')),
                              ('', fields(f'{axolotl}/peft.py', 'ReLoRAConfig')))},
}, sys.stdout, indent=0, sort_keys=True)
print()
