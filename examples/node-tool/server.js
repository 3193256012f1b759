// The service: every method of ToolService, health and reflection, on one address.
//
//     node server.js 127.0.0.1:50071
"use strict";

const grpc = require("@grpc/grpc-js");
const { ReflectionService } = require("@grpc/reflection");
const { HealthImplementation } = require("grpc-health-check");
const contract = require("./contract");
const { Call, failure, perform } = require("./calls");
const { Sessions } = require("./sessions");
const { descriptor, tools } = require("./tools");

const { Refusal, seconds } = contract;
const LEASE_SECONDS = 120;
const LONGEST_WAIT = 30;
const NAME = "node-tool 1.0.0";

const sessions = new Sessions();

const methods = {
  async ListTools() {
    return { tools: tools.map(descriptor), service: NAME };
  },

  async OpenSession(request) {
    need(request, "session_id", "owner");
    if (request.blobs.length > 0) throw unserved("OpenSession.blobs");
    const session = sessions.opened(request, seconds(request, "lease", LEASE_SECONDS));
    return { session_id: session.id, tools: session.tools.map(descriptor) };
  },

  async CallTool(request) {
    need(request, "session_id", "call_id");
    const wait = Math.min(seconds(request, "wait", LONGEST_WAIT), LONGEST_WAIT);
    const queueLimit = seconds(request, "queue_limit", 30);
    const runLimit = seconds(request, "run_limit", 30);
    const session = sessions.get(request.session_id);
    let call = session.ledger.find(request);
    if (call === undefined) {
      call = new Call(request);
      session.ledger.enter(call);
      perform(session, request, call, queueLimit, runLimit).catch((error) => {
        console.error(error);
        call.settle(new Refusal("INTERNAL", error.message, { subject: call.id }));
      });
    }
    return answer(call, wait);
  },

  async CancelCall(request) {
    const { ledger } = sessions.get(request.session_id);
    const call = ledger.calls.get(request.call_id);
    const cancelled = call !== undefined && call.settle(failure("CANCELLED", "cancelled"));
    return { cancelled };
  },

  async RenewLeases(request) {
    need(request, "owner");
    const lease = seconds(request, "lease", LEASE_SECONDS);
    return sessions.renew(request.owner, lease, request.session_ids);
  },

  async CloseSession(request) {
    need(request, "session_id");
    return { closed: sessions.close(request.session_id) };
  },
};

// The call's result, or `running` if it is not there after `wait` seconds.
async function answer(call, wait) {
  let timer;
  const patience = new Promise((resolve) => {
    timer = setTimeout(resolve, wait * 1000);
  });
  try {
    const result = await Promise.race([call.record, patience]);
    return result === undefined ? { running: call.times() } : { result };
  } finally {
    clearTimeout(timer);
  }
}

function need(request, ...fields) {
  for (const field of fields) {
    if (!request[field]) {
      throw new Refusal("INVALID_REQUEST", `${field} is missing`, {
        subject: field,
        mend: `set ${field}`,
      });
    }
  }
}

// What the contract has and this service does not: snapshots, forks, blobs.
function notServed(name) {
  return async () => {
    throw unserved(name);
  };
}

function unserved(name) {
  return new Refusal("NOT_SERVED", `${name} is not served here`, { subject: name });
}

// A method as grpc-js wants it. A cut or cancelled RPC ends here, and touches no call.
function handler(name, { requestStream, responseStream }) {
  const method = methods[name] || notServed(name);
  const refused = (error) => {
    if (error instanceof Refusal) return contract.grpcError(error);
    console.error(error);
    return contract.grpcError(new Refusal("INTERNAL", error.message));
  };
  if (responseStream) {
    return (stream) => method(stream.request).catch((error) => stream.emit("error", refused(error)));
  }
  if (requestStream) {
    // The client's pieces are read to their end: an answer before it would look like a cut.
    return (stream, callback) =>
      stream.resume().on("end", () => method().catch((error) => callback(refused(error))));
  }
  return (unary, callback) =>
    method(unary.request).then(
      (response) => callback(null, response),
      (error) => callback(refused(error)),
    );
}

function main(address) {
  const server = new grpc.Server({
    "grpc.max_receive_message_length": contract.MESSAGE_BYTES,
    "grpc.max_send_message_length": contract.MESSAGE_BYTES,
  });
  const service = contract.definition[contract.SERVICE_NAME];
  server.addService(
    service,
    Object.fromEntries(
      Object.entries(service).map(([name, method]) => [name, handler(name, method)]),
    ),
  );
  new HealthImplementation({ "": "SERVING", [contract.SERVICE_NAME]: "SERVING" }).addToServer(server);
  new ReflectionService(contract.definition).addToServer(server);
  server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) {
      console.error(`cannot listen on ${address}: ${error.message}`);
      process.exit(1);
    }
    console.log(`serving ${tools.map(({ name }) => name).join(", ")} on ${address.replace(/:\d+$/, "")}:${port}`);
  });
  for (const signal of ["SIGINT", "SIGTERM"]) {
    process.once(signal, () => {
      sessions.end();
      server.tryShutdown(() => process.exit(0));
      setTimeout(() => server.forceShutdown(), 1000).unref();
    });
  }
}

main(process.argv[2] || "127.0.0.1:50071");
