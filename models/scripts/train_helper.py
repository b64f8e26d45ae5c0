"""Trains the small language model in `models/data/helper` on the questions and answers there.

    pip install -r models/scripts/helper-requirements.txt
    python models/scripts/train_helper.py

It writes `tokenizer.json`, `helper.onnx` (a step of one token, with keys and values of earlier steps, weights in half
precision) and `texts.json`: what the model says in 32-bit floats. Takes about ten minutes on two cores.
"""

import argparse
import json
import math
import random
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

FOLDER = Path(__file__).parents[1] / "data/helper"
TOKENS, WIDTH, HEADS, LAYERS, PLACES = 512, 96, 4, 3, 384
START, END = "<|question|>", "<|end|>"
FORM = START + "{}\n"

# A conversation whose answers ship with the model.
TALK = [
    "What is a share?", "who sees the answer", "Can I train a model?", "what is a mask", "Thank you", "What is a tape?",
    "What if a server lies?",
]


def blocks():
    """The questions with their answers."""
    questions = []
    for line in (FOLDER / "questions.txt").read_text().splitlines():
        if line.startswith("? "):
            questions.append(line[2:])
        elif line and not line.startswith("#"):
            yield questions, line
            questions = []


def tokenizer_of(texts):
    """A tokenizer of pairs of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=[START, END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.both, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, key=None, value=None):
        batch, length, _ = x.shape
        parts = self.both(self.before(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        if key is not None:
            k, v = torch.cat([key, k], dim=2), torch.cat([value, v], dim=2)
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        total = k.shape[2]
        places = torch.arange(total)
        scores = scores.masked_fill(places[None] > places[total - length:, None], -math.inf)
        y = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.out(y)
        x = x + self.down(nn.functional.gelu(self.up(self.after(x))))
        return x, k, v


class Helper(nn.Module):
    """A small GPT-2, whose table of tokens also reads the result."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.05)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x, _, _ = block(x)
        return self.norm(x) @ self.tokens.weight.T


class Step(nn.Module):
    """Tokens behind keys and values of earlier ones, as exported."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, input_ids, position_ids, *past):
        x = self.net.tokens(input_ids) + self.net.places(position_ids)
        present = []
        for layer, block in enumerate(self.net.blocks):
            x, k, v = block(x, past[2 * layer], past[2 * layer + 1])
            present += [k, v]
        return (self.net.norm(x) @ self.net.tokens.weight.T, *present)


def texts_of(rng, pairs, tokenizer):
    """A text of several questions and answers, as tokens."""
    said = []
    while len(said) < PLACES:
        questions, answer = rng.choice(pairs)
        question = rng.choice(questions)
        kind = rng.random()
        if kind < 0.15:
            question = question.lower()
        elif kind < 0.3:
            question = question.rstrip("?")
        said += tokenizer.encode(FORM.replace("{}", question) + answer + END).ids
    return said[:PLACES]


def train(net, pairs, tokenizer, steps):
    rng = random.Random(1)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05, betas=(0.9, 0.98))
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps, pct_start=0.05)
    for step in range(steps):
        batch = torch.tensor([texts_of(rng, pairs, tokenizer) for _ in range(8)])
        scores = net(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.reshape(-1, TOKENS), batch[:, 1:].reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        rates.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def answer(net, tokenizer, question, most=80):
    """What the model says to a question."""
    said, added = tokenizer.encode(FORM.replace("{}", question)).ids, []
    with torch.no_grad():
        while len(added) < most:
            token = int(net(torch.tensor([said + added]))[0, -1].argmax())
            if token == tokenizer.token_to_id(END):
                break
            added.append(token)
    return tokenizer.decode(added)


def export(net, path):
    """The step as a file whose weights have 16 bits."""
    names = [f"{layer}.{side}" for layer in range(LAYERS) for side in ("key", "value")]
    past = [torch.zeros(1, HEADS, 3, WIDTH // HEADS) for _ in names]
    tokens, places = torch.tensor([[1, 2]]), torch.tensor([[3, 4]])
    inputs = ["input_ids", "position_ids", *(f"past_key_values.{name}" for name in names)]
    torch.onnx.export(
        Step(net).eval(), (tokens, places, *past), str(path), dynamo=False, opset_version=17,
        input_names=inputs, output_names=["logits", *(f"present.{name}" for name in names)],
        dynamic_axes={
            **{f"past_key_values.{name}": {2: "past"} for name in names},
            "input_ids": {1: "length"}, "position_ids": {1: "length"},
        },
    )
    model = onnx.load(path)
    casts, kept = [], []
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype != np.float32 or value.size < 64:
            kept.append(tensor)
            continue
        kept.append(numpy_helper.from_array(value.astype(np.float16), tensor.name + ".half"))
        casts.append(helper.make_node("Cast", [tensor.name + ".half"], [tensor.name], to=TensorProto.FLOAT))
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(casts + nodes)
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_texts(tokenizer):
    """What the file says to some questions in one conversation, in 32-bit floats, by the reference of the package onnx."""
    step = ReferenceEvaluator(str(FOLDER / "helper.onnx"))
    names = [value.name for value in step.proto_.graph.input][2:]
    past = [np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32) for _ in names]
    end, at, turns, margin = tokenizer.token_to_id(END), 0, [], math.inf
    for question in TALK:
        given, added = tokenizer.encode(FORM.replace("{}", question)).ids, []
        while not added or added[-1] != end:
            for token in given:
                inputs = {"input_ids": np.array([[token]]), "position_ids": np.array([[at]])}
                scores, *past = step.run(None, {**inputs, **dict(zip(names, past))})
                at += 1
            second, first = np.sort(scores[0, -1])[-2:]
            margin = min(margin, first - second)
            given = [int(scores[0, -1].argmax())]
            added += given
        # The end is part of the text.
        inputs = {"input_ids": np.array([given]), "position_ids": np.array([[at]])}
        _, *past = step.run(None, {**inputs, **dict(zip(names, past))})
        at += 1
        turns.append({"question": question, "tokens": added[:-1], "answer": tokenizer.decode(added[:-1])})
        print(f"{question} -> {turns[-1]['answer']}", flush=True)
    total = sum(len(turn["tokens"]) + 1 for turn in turns)
    print(f"{total} tokens added, {at} in all; the least distance of the highest score from the next is {margin:.4f}")
    (FOLDER / "texts.json").write_text(json.dumps(turns, indent=1) + "\n")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=1500)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--texts", action="store_true", help="write texts.json alone")
    arguments = arguments.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    pairs = list(blocks())
    if arguments.texts:
        return write_texts(Tokenizer.from_file(str(FOLDER / "tokenizer.json")))
    lines = [FORM.replace("{}", question) + text for questions, text in pairs for question in questions]
    tokenizer = tokenizer_of(lines)
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    net = Helper()
    print(f"{sum(p.numel() for p in net.parameters())} weights, {tokenizer.get_vocab_size()} tokens", flush=True)
    train(net, pairs, tokenizer, arguments.steps)
    net.eval()
    # The weights that ship: those of half precision.
    with torch.no_grad():
        for weight in net.parameters():
            if weight.numel() >= 64:
                weight.copy_(weight.half().float())
    export(net, FOLDER / "helper.onnx")
    right = sum(answer(net, tokenizer, question) == text for questions, text in pairs for question in questions)
    print(f"{right} of {len(lines)} questions answered as in the text", flush=True)
    write_texts(tokenizer)


if __name__ == "__main__":
    main()
