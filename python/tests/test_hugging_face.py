"""Models of Transformers with `attn_implementation="attnc"`, beside "sdpa" or "eager". Small ones with random weights;
on a GPU in bf16, else by the reference. Skipped where Transformers is not installed."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="Transformers is not installed: no model of it is run")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch import hugging_face  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
HEAD = 64 if ON_GPU else 16

SIZES = dict(vocab_size=99, hidden_size=4 * HEAD, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=HEAD, max_position_embeddings=256, pad_token_id=0, bos_token_id=1,
             eos_token_id=2)

MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "mistral with a window": lambda: transformers.MistralConfig(**SIZES, sliding_window=7),
    "gemma 2": lambda: transformers.Gemma2Config(**SIZES, sliding_window=8, query_pre_attn_scalar=HEAD,
                                                 attn_logit_softcapping=2.0),
    "gpt-oss": lambda: transformers.GptOssConfig(**SIZES, sliding_window=8, num_local_experts=2, num_experts_per_tok=1),
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    hugging_face.register()


def models(name):
    """The model by attnc, and by Transformers, with the same weights."""
    torch.manual_seed(0)
    other = "sdpa" if name in ("llama", "mistral with a window") else "eager"
    found = []
    for implementation in ("attnc", other):
        config = MODELS[name]()
        config._attn_implementation = implementation
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
        found.append(model.to(DEVICE, DTYPE).eval())
    with torch.no_grad():  # what is empty at first, such as sinks
        for one in found[0].parameters():
            one.copy_(torch.nan_to_num(one.float()) + 0.02 * torch.randn_like(one, dtype=torch.float32))
    found[1].load_state_dict(found[0].state_dict())
    return found


def tokens(batch=2, length=21):
    return torch.randint(3, 99, (batch, length), generator=torch.Generator().manual_seed(1)).to(DEVICE)


def close(found, wanted, bound=3e-2 if ON_GPU else 1e-4):
    scale = wanted.float().abs().max()
    assert (found.float() - wanted.float()).abs().max() <= bound * scale


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("padded", [False, True])
def test_logits(name, padded):
    ours, theirs = models(name)
    ids, mask = tokens(), torch.ones(2, 21, dtype=torch.long, device=DEVICE)
    if padded:
        mask[1, :6] = 0
    with torch.no_grad():
        found, wanted = (model(ids, attention_mask=mask).logits for model in (ours, theirs))
    close(found[mask.bool()], wanted[mask.bool()])


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step(name):
    ids, losses, gradients = tokens(), [], []
    for model in models(name):
        loss = model.train()(ids, labels=ids).loss
        loss.backward()
        losses.append(loss.detach())
        gradients.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
    close(*losses)
    assert gradients[0].keys() == gradients[1].keys()
    largest = max(gradient.float().norm() for gradient in gradients[1].values())
    for key, gradient in gradients[0].items():
        difference = (gradient.float() - gradients[1][key].float()).norm()
        assert difference <= (5e-2 if ON_GPU else 1e-3) * largest, key


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation(name, cache):
    """Step by step with a cache, from prompts of two lengths: the logits of each step, for the tokens of one model."""
    ours, theirs = models(name)
    ids, mask = tokens(), torch.ones(2, 21, dtype=torch.long, device=DEVICE)
    mask[1, :6] = 0
    options = dict(attention_mask=mask, max_new_tokens=6, do_sample=False, return_dict_in_generate=True,
                   output_logits=True, pad_token_id=0, eos_token_id=None, cache_implementation=cache,
                   disable_compile=True)
    with torch.no_grad():
        found = ours.generate(ids, **options)
        whole = torch.cat([mask, mask.new_ones(2, 6)], 1)
        places = (whole.cumsum(-1) - 1).clamp(min=0)
        wanted = theirs(found.sequences, attention_mask=whole, position_ids=places).logits
    for step, logits in enumerate(found.logits):
        close(logits, wanted[:, 20 + step])


def test_a_step_has_the_plan_of_its_bucket():
    """So that not every token compiles one."""
    lengths = [hugging_face.bucket(n) for n in range(1, 5000)]
    assert lengths == sorted(lengths) and all(n <= b < max(n + 128, 1.13 * n + 1) for n, b in enumerate(lengths, 1))
    assert len(set(lengths)) < 30
    texts, trace = set(), attn.torch.flex.Spec
    ours, _ = models("llama")
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(attn.torch.flex, "Spec", lambda text, **rest: (texts.add(text), trace(text, **rest))[1])
        ours.generate(tokens(1, 9), max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None)
    assert len(texts) <= 2


def test_masks_that_are_tensors():
    ours, theirs = models("llama")
    visible = (torch.rand(2, 1, 21, 21, generator=torch.Generator().manual_seed(3)) < 0.5).to(DEVICE)
    visible |= torch.eye(21, dtype=torch.bool, device=DEVICE)
    added = torch.where(visible, 0.0, torch.finfo(DTYPE).min).to(DTYPE)
    with torch.no_grad():
        for mask in (visible, added):
            close(*(model(tokens(), attention_mask=mask).logits for model in (ours, theirs)))


def test_in_a_program_that_is_compiled():
    ours, theirs = models("llama")
    torch._dynamo.reset()
    with torch.no_grad():
        close(torch.compile(ours, backend="aot_eager")(tokens()).logits, theirs(tokens()).logits)
