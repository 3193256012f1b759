"""A set of tasks for the package verifiers: sums, with or without a tool that adds."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    total: int
    tool: bool


class AdderConfig(vf.ToolsetConfig):
    pass


class Adder(vf.Toolset[AdderConfig, vf.State]):
    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Adds two whole numbers."""
        return str(a + b)


class SumTaskConfig(vf.TaskConfig):
    tool: bool = False


class SumTask(vf.Task[SumData, vf.State, SumTaskConfig]):
    @classmethod
    def toolsets(cls, config: SumTaskConfig) -> list[vf.Toolset]:
        return [Adder(AdderConfig())] if config.tool else []

    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.total))

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 10)


class SumsConfig(vf.TasksetConfig):
    size: int = 5
    task: SumTaskConfig = SumTaskConfig()


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for n in range(self.config.size):
            data = SumData(prompt=f"What is {n} + {n}?", total=2 * n, tool=self.config.task.tool)
            yield SumTask(data, self.config.task)


__all__ = ["Sums"]

if __name__ == "__main__":
    Adder.run()
