# pyright: basic, reportMissingImports=false
"""openai-agents, chat-completions model, tracing off, turn limit lifted."""

from collections.abc import Callable
from typing import Any

from bench.common import API_KEY, BASE_URL, PROMPT, SYSTEM, TOOLS, Peer
from bench.worker import main

MAX_TURNS = 10_000


class OpenAIAgents(Peer):
    """Agents are bound to a model, so one is kept per (model, tool)."""

    name = "openai_agents"

    async def setup(self) -> None:
        import agents
        from openai import AsyncOpenAI

        agents.set_tracing_disabled(True)
        self.library = agents
        self.client = AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)
        self.made: dict[tuple[str, str], Any] = {}

    def agent(self, model: str, tool: str) -> Any:
        if (model, tool) not in self.made:
            self.made[model, tool] = self.library.Agent(
                name="bench",
                instructions=SYSTEM,
                tools=[self.library.function_tool(TOOLS[tool])],
                model=self.library.OpenAIChatCompletionsModel(model=model, openai_client=self.client),
            )
        return self.made[model, tool]

    async def run(self, model: str, tool: str) -> str:
        result = await self.library.Runner.run(self.agent(model, tool), PROMPT, max_turns=MAX_TURNS)
        return result.final_output

    async def stream(self, model: str, tool: str, on_text: Callable[[str], None]) -> None:
        run = self.library.Runner.run_streamed(self.agent(model, tool), PROMPT, max_turns=MAX_TURNS)
        async for event in run.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                on_text(event.data.delta)


if __name__ == "__main__":
    main(OpenAIAgents)
