"""Verbs that bring a model to other people."""

from pathlib import Path

import tyro


def push(
    checkpoint: tyro.conf.Positional[Path],
    name: tyro.conf.Positional[str],
    private: bool = False,
    license: str = "mit",
) -> None:
    """Upload a model to the Hugging Face Hub, with a card that says what its run folder has on record.

    The token is the one that `hf auth login` keeps, or HF_TOKEN.

    Args:
        checkpoint: A checkpoint folder, or a run folder.
        name: Its name on the Hub, as owner/name; what is there already gets a new commit, the card too.
        private: Whether only its owner sees a model that is new there.
        license: The licence of the weights, by the Hub's short name.
    """
    from crate_mae.models.record import run_of
    from crate_mae.models.zoo import load

    about = {"run": run_of(checkpoint), "license": license}
    print(f"Pushed {load(checkpoint).push_to_hub(name, private=private, model_card_kwargs=about)}")
