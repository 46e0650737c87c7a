// Requests to nsqadmin.
import {page} from "./dom.js";

const request = async (method, where, body, signal) => {
  const headers = body === undefined ? {} : {"Content-Type": "application/json"};
  const answer = await fetch(`${page.base}${where}`, {
    method, signal, headers, credentials: "same-origin", body: JSON.stringify(body),
  }).catch((error) => { throw Object.assign(error, {status: 0}); });
  if (answer.ok) return answer;
  const {message, hint, problems} = await answer.json().catch(() => ({}));
  const code = message || `HTTP ${answer.status}`;
  throw Object.assign(new Error(hint ? `${hint} (${code})` : code), {status: answer.status, problems: problems || []});
};

export const get = async (where, signal) => (await request("GET", where, undefined, signal)).json();
export const send = async (method, where, body) => (await request(method, where, body)).json();

// Yields the values of a response with one JSON value a line, as they arrive.
export async function* lines(where, body, signal) {
  const reader = (await request("POST", where, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value = ""} = await reader.read();
    const parts = (rest + value).split("\n");
    rest = done ? "" : parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
    if (done) return;
  }
}
