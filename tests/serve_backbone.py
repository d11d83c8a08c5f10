"""A process that serves a backbone behind the chat protocol until its standard input ends; prints its address."""

from __future__ import annotations

import sys

import torch
from chat_server import answering, serving

from kedit.backbone import load_backbone

if __name__ == "__main__":
    torch.set_num_threads(1)
    with serving(answering(load_backbone(sys.argv[1], device="cpu"))) as server:
        print(server.url, flush=True)
        sys.stdin.read()
