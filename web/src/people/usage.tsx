/** Tokens and money by day and model; for an admin by person too. */

import { Download } from "lucide";
import { money } from "../chat/figures";
import { Icon } from "../ui/icon";
import { Shown, useLoaded } from "../ui/loaded";
import { saveFrom } from "../ui/save";
import { t } from "../words";
import { number } from "../words/count";
import { a } from "../words/people";
import { calls, type Usage } from "./calls";

export function UsageTable({ path }: { path: "/api/usage" | "/api/admin/usage" }) {
  const asked = `${path}?by=${path === "/api/usage" ? "day,model" : "day,owner,model"}`;
  const usage = useLoaded(() => calls.usage(asked), path);
  return (
    <Shown of={usage}>
      {(found) =>
        found.usage.length ? (
          <>
            <p class="note">{a().usageOf(found.since, found.until)}</p>
            <Table usage={found} isOfAll={path === "/api/admin/usage"} />
            <button type="button" class="small" onClick={() => saveFrom(`${asked}&format=csv`, "usage.csv")}>
              <Icon node={Download} size={14} /> {a().usageCsv}
            </button>
          </>
        ) : (
          <p class="note">{a().noUsage}</p>
        )
      }
    </Shown>
  );
}

function Table({ usage: { usage: rows, currency: code }, isOfAll }: { usage: Usage; isOfAll: boolean }) {
  const words = a();
  return (
    <div class="table-place" tabIndex={0} role="group" aria-label={words.usage}>
      <table>
        <thead>
          <tr>
            <th scope="col">{words.day}</th>
            {isOfAll && <th scope="col">{words.person}</th>}
            <th scope="col">{t().model}</th>
            <th scope="col">{t().runs}</th>
            <th scope="col">{words.tokensIn}</th>
            <th scope="col">{words.tokensOut}</th>
            <th scope="col">{t().costTitle}</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              <td>{row.day}</td>
              {isOfAll && <td dir="auto">{row.person || row.owner || words.deletedPeople}</td>}
              <td dir="ltr">{row.model}</td>
              <td>{number(row.runs)}</td>
              <td>{number(row.input_tokens)}</td>
              <td>{number(row.output_tokens)}</td>
              <td>{money(row.cost, code)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
