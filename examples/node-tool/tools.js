// Three small tools. `counter` is stateful and runs one call at a time, `echo` runs in parallel,
// `draw` answers an image. Each is a descriptor, which is all that an engine knows of it, and a
// function of the session's state, the arguments and a signal that says stop.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { duration, toStruct } = require("./contract");

const INLINE_BYTES = 256 * 1024;
const PICTURE =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle cx="4" cy="4" r="4"/></svg>';

// The tool ran and failed: the policy reads the message.
class ToolFailed extends Error {}

// The action cannot be read: the policy reads the message, and nothing ran.
class InvalidAction extends Error {}

const JSON_CALL = { json_call: { open: "<tool_call>", close: "</tool_call>" } };

function schema(types) {
  const properties = Object.fromEntries(
    Object.entries(types).map(([name, type]) => [name, { type }]),
  );
  return { type: "object", properties, required: Object.keys(types) };
}

const tools = [
  {
    name: "counter",
    description: "Adds to a counter of the session, after so many seconds, and tells it.",
    usage: '<tool_call>{"name": "counter", "arguments": {"add": 1, "after": 0}}</tool_call>',
    schema: schema({ add: "integer", after: "number" }),
    format: JSON_CALL,
    stateful: true,
    async run(state, { add, after }, signal) {
      await pause(after, signal);
      if (add < 0) throw new ToolFailed("the counter only goes up");
      state.counter = (state.counter || 0) + add;
      return text(String(state.counter));
    },
  },
  {
    name: "echo",
    description: "Says a text so many times, after so many seconds.",
    usage:
      '<tool_call>{"name": "echo", "arguments": {"text": "hi", "after": 0, "times": 1}}</tool_call>',
    schema: schema({ text: "string", after: "number", times: "integer" }),
    format: JSON_CALL,
    parallel: true,
    async run(state, { text: said, after, times }, signal) {
      await pause(after, signal);
      if (times < 1 || said.length * times > 16 * INLINE_BYTES) {
        throw new ToolFailed("that is too much to say");
      }
      return text(said.repeat(times));
    },
  },
  {
    name: "draw",
    description: "Draws a circle, whatever shape is asked for.",
    usage: "<draw>circle</draw>",
    schema: schema({ shape: "string" }),
    format: { tag: { open: "<draw>", close: "</draw>", argument: "shape" } },
    parallel: true,
    media: true,
    async run() {
      const media = { media_type: "image/svg+xml", data: Buffer.from(PICTURE) };
      return { observation: [{ media }], truncated: false };
    },
  },
];

// What the engine is told of a tool.
function descriptor(tool) {
  const marks = tool.format.tag || tool.format.json_call;
  return {
    name: tool.name,
    description: tool.description,
    usage: tool.usage,
    arguments_schema: toStruct(tool.schema),
    stop_strings: [marks.close],
    action_format: tool.format,
    parallel_calls: Boolean(tool.parallel),
    stateful: Boolean(tool.stateful),
    default_run_limit: duration(30),
    capabilities: { cancel: true, media: Boolean(tool.media) },
  };
}

// The tool whose format an action has, for a call that names none.
function findTool(action, offered) {
  const tagged = offered.find(({ format }) => format.tag && action.includes(format.tag.close));
  if (tagged) return tagged.name;
  const { name } = jsonCall(action);
  if (!offered.some((tool) => tool.name === name)) {
    throw new InvalidAction(`there is no tool ${JSON.stringify(name)}`);
  }
  return name;
}

// The arguments of a call, as its tool's schema wants them.
function readArguments(tool, action, given) {
  let found = given;
  if (found === undefined) {
    const { tag } = tool.format;
    found = tag ? { [tag.argument]: between(action, tag) } : jsonCall(action).arguments;
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) {
    throw new InvalidAction('"arguments" must be an object');
  }
  for (const name of tool.schema.required) {
    if (!(name in found)) throw new InvalidAction(`the argument ${name} is missing`);
  }
  for (const [name, value] of Object.entries(found)) {
    const type = tool.schema.properties[name]?.type;
    if (type === undefined) throw new InvalidAction(`${tool.name} has no argument ${name}`);
    const fits = type === "integer" ? Number.isInteger(value) : typeof value === type;
    if (!fits) throw new InvalidAction(`${name} must be of the type ${type}`);
  }
  return found;
}

function jsonCall(action) {
  let call;
  try {
    call = JSON.parse(between(action, JSON_CALL.json_call));
  } catch (error) {
    if (error instanceof InvalidAction) throw error;
    throw new InvalidAction(`the call is no JSON: ${error.message}`);
  }
  if (call === null || typeof call !== "object") throw new InvalidAction("the call is no object");
  return call;
}

function between(action, { open, close }) {
  const end = action.lastIndexOf(close);
  const start = action.indexOf(open);
  if (end < 0 || start < 0 || start + open.length > end) {
    throw new InvalidAction(`the action has no ${open}...${close}`);
  }
  return action.slice(start + open.length, end);
}

// A part holds at most 256 KiB; what is beyond is cut, and said to be.
function text(said) {
  const bytes = Buffer.from(said);
  const truncated = bytes.length > INLINE_BYTES;
  // Cut inside a letter, the letter's bytes that are left are no text.
  const kept = truncated
    ? bytes.subarray(0, INLINE_BYTES - 4).toString().replace(/\uFFFD$/, "")
    : said;
  return { observation: [{ text: kept }], truncated };
}

async function pause(time, signal) {
  if (time > 0) await sleep(time * 1000, undefined, { signal });
}

module.exports = { InvalidAction, ToolFailed, descriptor, findTool, readArguments, tools };
