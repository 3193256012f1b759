// Questions to the server. The token comes in the address's fragment, which no server sees, or from
// the form; it is kept for this tab alone and travels in a header.

const TOKEN = "toolwright-token";
const AGAIN_MS = 2000;

export class Refused extends Error {} // the token is missing or wrong

export class Failed extends Error {}

export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  keepToken(given);
  history.replaceState(null, "", location.pathname + location.search);
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export async function ask(what, asked = {}, signal = undefined) {
  return (await answerTo(what, asked, signal)).json();
}

export async function askBytes(what, asked) {
  return (await answerTo(what, asked)).blob();
}

async function answerTo(what, asked, signal = undefined) {
  const known = Object.entries(asked).filter(([, value]) => value !== undefined && value !== "");
  const answer = await fetch(`/api/${what}?${new URLSearchParams(known)}`, { headers: headers(), signal });
  if (answer.status === 401) throw new Refused("the token is missing or wrong");
  if (answer.ok) return answer;
  const text = await answer.text();
  let sentence = text;
  try {
    sentence = JSON.parse(text).error;
  } catch {} // a plain sentence
  throw new Failed(sentence || `the server answered ${answer.status}`);
}

// Calls `heard` with the state of all runs, now and after every change; `lost` without an answer.
export async function listen(heard, lost) {
  for (;;) {
    try {
      const answer = await fetch("/api/growth", { headers: headers() });
      if (answer.status === 401) throw new Refused();
      await events(answer.body.getReader(), heard);
    } catch (error) {
      lost(error);
      if (error instanceof Refused) return;
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

async function events(reader, heard) {
  const decoder = new TextDecoder();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (left + decoder.decode(value, { stream: true })).split("\n\n");
    left = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) heard(JSON.parse(part.slice(6)));
  }
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}
