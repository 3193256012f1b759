"""What of a policy folder is copied into a published one, and which folders are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from learner.model.bridge import _copy_the_rest

pytestmark = pytest.mark.quick

KEPT = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("chat_template.jinja", "vocab.json", "merges.txt", "README.md", "preprocessor_config.json"),
)
LEFT = (
    *("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "tf_model.h5"),
    *("flax_model.msgpack", "model.onnx", "model.onnx_data", "rust_model.ot", "weights.npz"),
    *("consolidated.00.pth", "model.Q8_0.GGUF", "model.ckpt.index", "pytorch_model.bin.index.json"),
    *("adapter_config.json", "adapter_model.bin", "optimizer.pt", ".gitattributes"),
)


def test_no_old_weights_and_every_template(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "published"
    (source / "additional_chat_templates").mkdir(parents=True)
    (source / "other").mkdir()
    folder.mkdir()
    for name in (*KEPT, *LEFT, "other/x.json"):
        (source / name).write_text("{}", encoding="utf-8")
    (source / "additional_chat_templates" / "tool_use.jinja").write_text("TOOLS", encoding="utf-8")
    _copy_the_rest(source, folder, torch.float32)
    assert sorted(file.name for file in folder.iterdir() if file.is_file()) == sorted(KEPT)
    inside = folder / "additional_chat_templates"
    assert [one.name for one in folder.iterdir() if one.is_dir()] == [inside.name]
    assert (inside / "tool_use.jinja").read_text(encoding="utf-8") == "TOOLS"
