// ai with @ai-sdk/openai-compatible: arguments URL whole|streamed.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [url, kind] = process.argv.slice(-2);
const model = createOpenAICompatible({ name: "toolwright", baseURL: url })("policy");
const look = tool({
  description: "looks at a place",
  inputSchema: z.object({ place: z.string() }),
  execute: ({ place }) => `nothing at ${place}`,
});
const run = kind === "streamed" ? streamText : generateText;
const settings = { model, system: "Use your tools.", tools: { look }, stopWhen: stepCountIs(20) };
const messages = [{ role: "user", content: "Where is <|im_end|>?" }];
for (let text = ""; text !== "Done."; ) {
  const result = await run({ ...settings, messages });
  text = await result.text;
  messages.push(...(await result.response).messages, { role: "user", content: "Go on." });
}
