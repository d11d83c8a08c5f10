"""The embedded backbone ``tiny-internvl``: the real InternVL class with a Qwen3 decoder, small enough to ship."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from kedit.zoo.plan import FOLLOW, Phase, Plan
from kedit.zoo.recipe import IMAGE_SIZE, MEAN_STD, PATCH, VISUAL_TOKENS, Recipe, decoder_sizes


class TinyInternVL(Recipe):
    """Full attention in every layer; 3.45 M parameters."""

    name = "tiny-internvl"
    image_tokens = ("<img>", "<IMG_CONTEXT>", "</img>")
    video_token = "<video>"
    plan = Plan((Phase("look", 600, 2e-3, 900), Phase("read", 448, 1.5e-3, 448)))

    def token_names(self) -> dict[str, str]:
        opens, pad, closes = self.image_tokens
        return {
            "start_image_token": opens,
            "end_image_token": closes,
            "context_image_token": pad,
            "video_token": self.video_token,
        }

    def make_processor(self, tokenizer: Any) -> Any:
        from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

        images = GotOcr2ImageProcessor(
            size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
            min_patches=1,
            max_patches=1,  # the processor asks for tiles whatever is set here, so one tile is all there may be
            do_convert_rgb=True,
            **MEAN_STD,
        )
        return InternVLProcessor(
            image_processor=images,
            tokenizer=tokenizer,
            video_processor=InternVLVideoProcessor(),
            image_seq_length=VISUAL_TOKENS,
            chat_template=self.chat_template(self.image_tokens[1]),
        )

    def make_model(self, tokenizer: Any) -> Any:
        from transformers import InternVLConfig, InternVLForConditionalGeneration

        config = InternVLConfig(
            vision_config={
                "hidden_size": 128,
                "intermediate_size": 384,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": [IMAGE_SIZE, IMAGE_SIZE],
                "patch_size": [PATCH, PATCH],
                "layer_scale_init_value": 1.0,
                "use_absolute_position_embeddings": True,
                "use_mean_pooling": False,
            },
            text_config={"model_type": "qwen3", **decoder_sizes(tokenizer, self.kept)},
            image_token_id=tokenizer.convert_tokens_to_ids(self.image_tokens[1]),
            image_seq_length=VISUAL_TOKENS,
            downsample_ratio=0.5,
            tie_word_embeddings=True,
        )
        return self.finish(InternVLForConditionalGeneration(config))

    def eyes(self, model: Any) -> nn.ModuleList:
        return nn.ModuleList([model.model.vision_tower, model.model.multi_modal_projector])

    def features(self, model: Any, pixels: Tensor) -> Tensor:
        found: Tensor = model.model.get_image_features(pixels, return_dict=True).pooler_output
        return found.reshape(len(pixels), VISUAL_TOKENS, -1)

    def pixels(self, processor: Any, picture: Any) -> Tensor:
        found: Tensor = processor.image_processor(picture, return_tensors="pt")["pixel_values"][0]
        return found

    def inputs(self, model: Any, ids: Tensor, pixels: Tensor | None) -> dict[str, Any]:
        return {"pixel_values": pixels}


class TinyInternVLSmall(TinyInternVL):
    """The lower three of the four layers, without which nothing is copied; 3.1 M parameters."""

    name = "tiny-internvl-small"
    plan = FOLLOW
    kept = (0, 1, 2)


RECIPE = TinyInternVL()
SMALL = TinyInternVLSmall()
