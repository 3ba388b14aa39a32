"""tiny.py FOLDER: the smallest job of two ranks, job.toml and data.txt in FOLDER; for scripts that run it again and again.

All else (steps, saves, output_dir, limits) is told with --set. Paths are from the folder in which it is started."""

import json
import os
import sys

JOB = """[model.config]
model_type = "llama"
hidden_size = 16
intermediate_size = 32
num_hidden_layers = 1
num_attention_heads = 2
vocab_size = 257
max_position_embeddings = 32
[data]
cutoff_len = 16
cache_dir = "cache"
[[data.train]]
path = "data.txt"
[train]
dtype = "fp32"
[device]
cpu_threads = 1
"""
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}


def write(folder, lines=60):
    with open(folder + "/data.txt", "w", encoding="ascii") as file:
        file.writelines(f"The miller kept the accounts of the mill, line {i}\n" for i in range(1, lines + 1))
    with open(folder + "/job.toml", "w", encoding="ascii") as file:
        file.write(JOB)


def write_job(path, config, job):
    """A job of a model.config and of keys with their sections, whose data are ../data.txt."""
    sections = {"job": {"output_dir": "out"}, "data": {"cache_dir": "../cache"}}
    for key, value in job.items():
        section, name = key.rsplit(".", 1)
        sections.setdefault(section, {})[name] = value
    with open(path, "w", encoding="utf-8") as file:
        for section, values in {"model.config": config, **sections}.items():
            file.write(f"[{section}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items()))
        file.write('[[data.train]]\npath = "../data.txt"\n')


def sets(settings):
    """Of a dictionary, as arguments."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    write(os.path.realpath(sys.argv[1]))
