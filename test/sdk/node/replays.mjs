// Sends each request of standard input, a JSON line {"name","format","messages","system"?,"tools"?}, with the client of
// its provider to a server of its own, and prints a line for each that does not arrive as it was given.

import http from 'node:http';
import readline from 'node:readline';
import { isDeepStrictEqual } from 'node:util';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

let body;
const server = http.createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    body = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    response.setHeader('content-type', 'application/json');
    response.end('{}');
  });
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const options = { apiKey: 'none', baseURL: `http://127.0.0.1:${server.address().port}`, maxRetries: 0, timeout: 20_000 };
const openai = new OpenAI(options);
const anthropic = new Anthropic(options);

const formats = {
  openai: [(r) => openai.chat.completions.create({ model: 'm', ...r }), 'messages'],
  responses: [(r) => openai.responses.create({ model: 'm', ...r }), 'input'],
  anthropic: [(r) => anthropic.messages.create({ model: 'm', max_tokens: 1, ...r }), 'messages'],
};

let sent = 0;
for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { name, format, messages, system, tools } = JSON.parse(line);
  const [send, list] = formats[format];
  const given = { [list]: messages };
  if (system !== undefined) given.system = system;
  if (tools !== undefined) given.tools = tools;
  // As JavaScript has it: it has no -0 in JSON, and no numbers over its largest.
  const want = JSON.parse(JSON.stringify(given));
  body = undefined;
  try {
    await send(given);
  } catch (error) {
    console.log(`${format} ${name}: ${error}`);
    continue;
  }
  for (const part of [list, 'system', 'tools']) {
    if (!isDeepStrictEqual(body?.[part], want[part])) console.log(`${format} ${name}: ${part} arrive as another value`);
  }
  sent++;
}
console.log(`sent ${sent}`);
server.close();
server.closeAllConnections();
