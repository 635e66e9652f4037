"""Models on the Hugging Face Hub, and in folders of the same layout."""

import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crate_mae.errors import UserError
from crate_mae.models.locate import in_one_sentence
from crate_mae.settings import Size

if TYPE_CHECKING:  # the Hub's client takes as long to import as all models
    from typing import Self

    from huggingface_hub import ModelCard

CARD = "README.md"


class HubModel(ABC):
    """``save_pretrained``, ``from_pretrained``, ``push_to_hub``: the files of ``save``, and a model card beside them.

    The names and arguments are those of huggingface_hub's ``PyTorchModelHubMixin``.

    ``model_card_kwargs`` are the arguments of ``model_card``: ``license``, and ``run``, the run folder whose best
    checkpoint this is: the card takes recipe, data and numbers from it.
    """

    @abstractmethod
    def save(self, path: str | Path) -> Path:
        """Write a checkpoint folder."""

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: dict[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """``save``, and a README.md that is the model's card; an existing README.md is not overwritten."""
        card = self.generate_model_card(**(model_card_kwargs or {}))
        folder = self.save(save_directory)
        try:
            if not (folder / CARD).exists():
                card.save(folder / CARD)
        except OSError as error:
            raise UserError(f"the model card {folder / CARD} could not be written ({error.strerror}).") from None
        if not push_to_hub:
            return None
        return self.push_to_hub(repo_id or folder.name, model_card_kwargs=model_card_kwargs, **push_to_hub_kwargs)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        image_size: int | Size | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> "Self":
        """``load`` with the options that the Hub's downloads have.

        Called on ``ImageModel`` it takes any kind of model; called on a kind it takes that kind only.
        """
        from crate_mae.models.zoo import load  # the zoo knows every kind, each of which is a HubModel

        name = pretrained_model_name_or_path
        model = load(
            name,
            image_size,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
        )
        if not isinstance(model, cls):
            raise UserError(f"{name} holds a model of kind {model.kind}; ImageModel.from_pretrained takes any kind.")
        return model

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Push a model with crate-mae.",
        private: bool | None = None,
        token: str | None = None,
        branch: str | None = None,
        model_card_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> str:
        """``save_pretrained`` to a model of that name on the Hub, created if needed; returns the address of the commit.

        ``options`` are those of the Hub's ``upload_folder``: ``create_pr``, ``allow_patterns`` and so on.
        """
        from huggingface_hub import HfApi

        card = {"repo_id": repo_id} | (model_card_kwargs or {})
        self.generate_model_card(**card)  # before the repository is created, since it may fail
        with in_one_sentence(f"{repo_id} could not be pushed to the Hub; check the name, the network and the token"):
            api = HfApi(token=token)
            created = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            with tempfile.TemporaryDirectory() as folder:
                self.save_pretrained(folder, model_card_kwargs=card)
                return api.upload_folder(
                    repo_id=created, folder_path=folder, commit_message=commit_message, revision=branch, **options
                )

    def generate_model_card(self, **about: Any) -> "ModelCard":
        """The card that ``save_pretrained`` writes; ``about`` are the arguments of ``model_card``."""
        from crate_mae.hub.card import model_card  # a card may describe a run, on which models do not depend

        return model_card(self, **about)  # type: ignore[arg-type]
