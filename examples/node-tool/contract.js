// The contract: its .proto files, how a refusal travels, and plain values for protobuf's.
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const protoLoader = require("@grpc/proto-loader");

// Where the contract's .proto files are: proto/ of the repository that this folder is in.
const CONTRACT = process.env.TOOLWRIGHT_PROTO || path.join(__dirname, "..", "..", "proto");

const definition = protoLoader.loadSync(
  ["toolwright/tool/v1/tool.proto", "google/rpc/status.proto"],
  {
    includeDirs: [CONTRACT, path.join(__dirname, "protos")],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  },
);

const SERVICE_NAME = "toolwright.tool.v1.ToolService";
const MESSAGE_BYTES = 64 * 1024 * 1024;

const CODES = {
  INVALID_REQUEST: grpc.status.INVALID_ARGUMENT,
  SESSION_NOT_FOUND: grpc.status.NOT_FOUND,
  SESSION_CLOSED: grpc.status.FAILED_PRECONDITION,
  CALL_ID_REUSED: grpc.status.FAILED_PRECONDITION,
  RESULT_FORGOTTEN: grpc.status.FAILED_PRECONDITION,
  SESSION_BUSY: grpc.status.FAILED_PRECONDITION,
  QUEUE_LIMIT: grpc.status.RESOURCE_EXHAUSTED,
  TOO_MANY_SESSIONS: grpc.status.RESOURCE_EXHAUSTED,
  UNKNOWN_TOOL: grpc.status.NOT_FOUND,
  NOT_SERVED: grpc.status.UNIMPLEMENTED,
  INTERNAL: grpc.status.INTERNAL,
};

// The service could not do what it was asked; the policy never sees one of these.
class Refusal extends Error {
  // `reason`: an ErrorReason without its prefix. `retryAfter`: seconds after which the same
  // request may succeed; left out where it never will.
  constructor(reason, message, { subject = "", mend = "", retryAfter } = {}) {
    super(message);
    this.reason = reason;
    this.subject = subject;
    this.mend = mend;
    this.retryAfter = retryAfter;
  }
}

function pack(type, message) {
  return { type_url: `type.googleapis.com/${type}`, value: definition[type].serialize(message) };
}

// What grpc-js wants of a failed call: code, text, and google.rpc.Status in the trailers.
function grpcError(refusal) {
  const code = CODES[refusal.reason];
  const details = [
    pack("toolwright.common.v1.ErrorDetail", {
      reason: `ERROR_REASON_${refusal.reason}`,
      subject: refusal.subject,
      mend: refusal.mend,
    }),
  ];
  if (refusal.retryAfter !== undefined) {
    details.push(pack("google.rpc.RetryInfo", { retry_delay: duration(refusal.retryAfter) }));
  }
  const metadata = new grpc.Metadata();
  metadata.set(
    "grpc-status-details-bin",
    definition["google.rpc.Status"].serialize({ code, message: refusal.message, details }),
  );
  return { code, details: refusal.message, metadata };
}

function duration(seconds) {
  const whole = Math.floor(seconds);
  return { seconds: whole, nanos: Math.floor((seconds - whole) * 1e9) };
}

// Seconds of a duration field, or `otherwise` where it is not set.
function seconds(request, field, otherwise) {
  if (!request[field]) return otherwise;
  const value = Number(request[field].seconds) + request[field].nanos / 1e9;
  if (value < 0) {
    throw new Refusal("INVALID_REQUEST", `${field} is ${value} s`, {
      subject: field,
      mend: "give a time that is not negative, or leave it out",
    });
  }
  return value;
}

// google.protobuf.Struct as a plain object, and back.
function fromStruct(struct) {
  return Object.fromEntries(
    Object.entries(struct.fields || {}).map(([name, value]) => [name, fromValue(value)]),
  );
}

function fromValue(value) {
  switch (value.kind) {
    case "structValue":
      return fromStruct(value.structValue);
    case "listValue":
      return (value.listValue.values || []).map(fromValue);
    case undefined:
    case "nullValue":
      return null;
    default:
      return value[value.kind];
  }
}

function toStruct(object) {
  return {
    fields: Object.fromEntries(
      Object.entries(object).map(([name, value]) => [name, toValue(value)]),
    ),
  };
}

function toValue(value) {
  if (value === null) return { nullValue: 0 };
  if (typeof value === "number") return { numberValue: value };
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value === "string") return { stringValue: value };
  if (Array.isArray(value)) return { listValue: { values: value.map(toValue) } };
  return { structValue: toStruct(value) };
}

// A text that two messages share exactly when they say the same. The entries of a map come in any
// order, and JSON alone has one word for all numbers that it cannot write.
function identity(value) {
  if (Array.isArray(value)) return `[${value.map(identity).join()}]`;
  if (value !== null && typeof value === "object") {
    const entries = Object.keys(value).sort();
    return `{${entries.map((name) => `${JSON.stringify(name)}:${identity(value[name])}`).join()}}`;
  }
  return typeof value === "number" ? String(value) : JSON.stringify(value) || "";
}

module.exports = {
  MESSAGE_BYTES,
  Refusal,
  SERVICE_NAME,
  definition,
  duration,
  fromStruct,
  grpcError,
  identity,
  seconds,
  toStruct,
};
