// Cells that tables of connections share.
import {el, path} from "./dom.js";
import {duration} from "./format.js";

export const attributes = (cell, row) => {
  const found = [];
  if (row.tls) found.push([row.tls_version || "TLS", "good", row.tls_cipher_suite || "encrypted"]);
  if (row.deflate) found.push(["deflate", "", "compressed"]);
  if (row.snappy) found.push(["snappy", "", "compressed"]);
  if (row.sample_rate) found.push([`sampled ${row.sample_rate} %`, "", "gets a part of the messages"]);
  if (row.authed) found.push([row.auth_identity || "authed", "good", "authenticated"]);
  const key = JSON.stringify(found);
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  cell.replaceChildren(...(found.length ? found.map(([text, kind, why]) => el("span", {class: `badge ${kind}`, title: why}, text))
    : [el("small", {}, "plain")]));
};

export const client = (cell, row) => {
  const host = row.hostname || row.remote_address;
  const more = row.client_id && row.client_id !== row.hostname ? row.client_id : row.remote_address;
  const key = `${host} ${more}`;
  if (cell.dataset.key === key) return;
  cell.dataset.key = key;
  cell.title = `${host}, ${row.client_id}, ${row.remote_address}`;
  cell.replaceChildren(host, " ", el("small", {}, more));
};

export const node = (cell, row) => {
  if (!cell.firstElementChild) cell.append(el("a", {href: path("nodes", row.node), title: row.node}, row.node));
};

export const connected = (cell, row) => {
  const text = duration(Math.max(0, Date.now() / 1000 - row.connect_ts));
  if (cell.textContent !== text) cell.textContent = text;
};
