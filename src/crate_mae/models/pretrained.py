"""Models on the Hugging Face Hub, and in folders laid out as they are there."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard, PyTorchModelHubMixin, snapshot_download

from crate_mae.errors import UserError
from crate_mae.models.checkpoint import CONFIG, WEIGHTS
from crate_mae.tokens import Size

if TYPE_CHECKING:
    from typing import Self

CARD = "README.md"


class HubModel(PyTorchModelHubMixin, ABC):
    """``save_pretrained``, ``from_pretrained``, ``push_to_hub``: the files of ``save``, and a model card beside them.

    ``model_card_kwargs`` are the arguments of ``model_card``: ``run``, the run folder whose best checkpoint this is,
    from which the card has recipe, data and numbers, and ``license``.
    """

    @abstractmethod
    def save(self, path: str | Path) -> Path:
        """Write a checkpoint folder."""

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        *,
        config: None = None,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        model_card_kwargs: dict[str, Any] | None = None,
        **push_to_hub_kwargs: Any,
    ) -> str | None:
        """``save``, and a README.md that is the model's card; one that is there already stays as it is.

        ``config`` is there for the mixin: a model's own configuration can't be replaced.
        """
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
    def from_pretrained(  # type: ignore[override]
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
        """``load`` from a folder, a run's too, or else from the Hub; a model of the kind that was saved, to evaluate.

        Called on ``ImageModel`` it takes any kind; called on a kind it takes that alone.
        """
        from crate_mae.models.zoo import load  # the zoo knows every kind, each of which is a HubModel

        name = str(pretrained_model_name_or_path)
        folder = Path(name).expanduser()
        if not folder.exists():
            with _in_one_sentence(
                f"there is no folder {name}, and the Hugging Face Hub gave no model of that name; check the name, the "
                "network or your token"
            ):
                folder = Path(
                    snapshot_download(
                        name,
                        revision=revision,
                        token=token,
                        cache_dir=cache_dir,
                        force_download=force_download,
                        local_files_only=local_files_only,
                        allow_patterns=[CONFIG, WEIGHTS],
                    )
                )
        model = load(folder, image_size)
        if not isinstance(model, cls):
            raise UserError(f"{name} holds a model of kind {model.kind}; ImageModel.from_pretrained takes any kind.")
        return model.eval()

    def push_to_hub(self, repo_id: str, *, model_card_kwargs: dict[str, Any] | None = None, **options: Any) -> str:
        """``save_pretrained`` to a model of that name on the Hub, made where there is none; the address of the commit.

        ``options`` are the mixin's: ``private``, ``token``, ``branch``, ``commit_message``, ``create_pr`` and so on.
        """
        card = {"repo_id": repo_id} | (model_card_kwargs or {})
        self.generate_model_card(**card)  # one that can't be written must not leave an empty repository behind
        with _in_one_sentence(f"{repo_id} could not be pushed to the Hub; check the name, the network and the token"):
            return super().push_to_hub(repo_id, model_card_kwargs=card, **options)

    def generate_model_card(self, **about: Any) -> ModelCard:
        """The card that ``save_pretrained`` writes; ``about`` are the arguments of ``model_card``."""
        from crate_mae.hub.card import model_card  # a card may tell of a run, and models know no runs

        return model_card(self, **about)  # type: ignore[arg-type]


@contextmanager
def _in_one_sentence(trouble: str) -> Iterator[None]:
    """Whatever the Hub, the network and their libraries raise, as an error for people."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # by their versions it is requests', httpx's or the Hub's own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"{trouble} ({reason}).") from None
