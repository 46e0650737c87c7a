// Requests to nsqadmin. An error has the server's message and hint.
import {page} from "./dom.js";

export class ApiError extends Error {
  constructor(status, code, hint, problems) {
    super(hint ? `${hint} (${code})` : code);
    this.status = status;
    this.code = code;
    this.problems = problems || [];
  }
}

const request = async (method, where, body, signal) => {
  const options = {method, signal, credentials: "same-origin", headers: {}};
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(`${page.base}${where}`, options);
  if (!answer.ok) {
    const values = await answer.json().catch(() => ({}));
    throw new ApiError(answer.status, values.message || `HTTP ${answer.status}`, values.hint, values.problems);
  }
  return answer;
};

export const get = async (where, signal) => (await request("GET", where, undefined, signal)).json();
export const send = async (method, where, body) => (await request(method, where, body)).json();

// Yields the values of a response with one JSON value a line, as they arrive.
export async function* lines(where, body, signal) {
  const reader = (await request("POST", where, body, signal)).body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    rest += decoder.decode(value, {stream: !done});
    const parts = rest.split("\n");
    rest = done ? "" : parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
    if (done) return;
  }
}
