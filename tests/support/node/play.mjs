// Plays three calls with an SDK of another language: node play.mjs sdk|client URL TOOL [HEADER=VALUE].
import { createRequire } from "node:module";

const [sdk, url, tool, header] = process.argv.slice(2);
const require = createRequire(`${process.env.ENVPORT_NODE}/x.js`);

function load() {
  if (sdk === "client") return require("@modelcontextprotocol/client");
  return {
    ...require("@modelcontextprotocol/sdk/client/index.js"),
    ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  };
}

const { Client, StreamableHTTPClientTransport } = load();
const headers = header ? Object.fromEntries([header.split("=")]) : {};
const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
const client = new Client({ name: "envport-test", version: "1" }, sdk === "client" ? { versionNegotiation: { mode: "auto" } } : {});
await client.connect(transport);
const listed = (await client.listTools()).tools;
const answers = [];
for (let call = 0; call < 3; call++) {
  const result = await client.callTool({ name: tool, arguments: {} });
  answers.push(result.content.at(-1).text);
}
const refused = await client.callTool({ name: tool, arguments: { by: 1 } });
console.log(JSON.stringify({ tools: listed, answers, refused: refused.content[0].text, isError: refused.isError, instructions: client.getInstructions() }));
await client.close();
