# pyright: basic, reportMissingImports=false
"""pydantic-ai, chat-completions model, request limit lifted."""

from collections.abc import Callable
from typing import Any

from bench.common import API_KEY, BASE_URL, PROMPT, SYSTEM, TOOLS, Peer
from bench.worker import main


class PydanticAI(Peer):
    """Agent and model objects are made once; the model is handed to each run."""

    name = "pydantic_ai"

    async def setup(self) -> None:
        from pydantic_ai import Agent, UsageLimits
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=BASE_URL, api_key=API_KEY)
        self.make_model = lambda name: OpenAIChatModel(name, provider=provider)
        self.no_limits = UsageLimits(request_limit=None)
        self.agents = {name: Agent(instructions=SYSTEM, tools=[function]) for name, function in TOOLS.items()}
        self.models: dict[str, Any] = {}

    def model(self, name: str) -> Any:
        if name not in self.models:
            self.models[name] = self.make_model(name)
        return self.models[name]

    async def run(self, model: str, tool: str) -> str:
        result = await self.agents[tool].run(PROMPT, model=self.model(model), usage_limits=self.no_limits)
        return result.output

    async def stream(self, model: str, tool: str, on_text: Callable[[str], None]) -> None:
        run = self.agents[tool].run_stream(PROMPT, model=self.model(model), usage_limits=self.no_limits)
        async with run as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                on_text(text)


if __name__ == "__main__":
    main(PydanticAI)
