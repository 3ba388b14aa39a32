#!/usr/bin/env python3
"""What axolotl makes of Alpaca's rows: ids and which of them are trained, for tests/cli/test_init.sh.

   axolotl_prompts.py AXOLOTL >tests/fixtures/init/alpaca.json     needs the package tokenizers

AXOLOTL is the package axolotl 0.19.0, unpacked. Its own prompter and tokenizing strategy run; what they import beside
them (transformers, datasets) is not needed and replaced."""
import json
import os
import sys
import types

from tokenizers import Tokenizer

root = sys.argv[1]
fixture = os.path.join(os.path.dirname(__file__), '../fixtures/qwen3/model/')


class Anything(dict):
    def __init__(self, data=None, **rest):
        super().__init__(data or rest)


def stub(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(names)


class Log:
    def __getattr__(self, name):
        return lambda *words: None


stub('colorama', Fore=type('Fore', (), {'CYAN': '', 'RESET': ''}))
stub('datasets', Dataset=Anything)
stub('transformers', BatchEncoding=Anything, PreTrainedTokenizer=Anything)
for package, folder in (('axolotl', root), ('axolotl.utils', root + '/utils')):
    stub(package, __path__=[folder])
stub('axolotl.utils.logging', get_logger=lambda name: Log())
from axolotl.prompt_tokenizers import AlpacaPromptTokenizingStrategy  # noqa: E402
from axolotl.prompters import AlpacaPrompter  # noqa: E402


class Words:
    """What the strategy asks of a tokenizer."""
    bos_token_id = None

    def __init__(self):
        self.tokenizer = Tokenizer.from_file(fixture + 'tokenizer.json')
        self.eos_token_id = json.load(open(fixture + 'config.json'))['eos_token_id']

    def __call__(self, text, **rest):
        ids = self.tokenizer.encode(text).ids
        return {'input_ids': ids, 'attention_mask': [1] * len(ids)}


rows = [{'instruction': 'Name the river.', 'input': 'It flows through Vienna.', 'output': 'The Danube.'},
        {'instruction': 'Count to three.', 'input': '', 'output': 'One, two, three.'},
        {'instruction': 'Two\nlines, caf\u00e9.', 'output': '\n begins with a blank line '}]
result = {'rows': rows, 'made': {}}
for whole in (False, True):
    strategy = AlpacaPromptTokenizingStrategy(AlpacaPrompter(), Words(), whole, 2048)
    made = [strategy.tokenize_prompt(row) for row in rows]
    result['made'][str(whole).lower()] = [[m['input_ids'], [int(label >= 0) for label in m['labels']]] for m in made]
json.dump(result, sys.stdout)
print()
