/** Schedules and triggers: what starts runs without a person. */
import { scheduleCalls } from "../schedules/calls";
import { Schedules } from "../schedules/schedules";
import { Triggers } from "../schedules/triggers";
import "../styles/people.css";
import "../styles/schedules.css";
import "../styles/settings.css";
import "../styles/views.css";
import { useLoaded } from "../ui/loaded";
import { usePageTitle } from "../ui/page-title";
import { ViewHeader } from "../ui/view-header";
import { t } from "../words";

/** Milliseconds after which the page looks again what has run. */
const LOOK_AGAIN = 5_000;

export default function SchedulesView() {
  const schedules = useLoaded(scheduleCalls.schedules, null, LOOK_AGAIN);
  const triggers = useLoaded(scheduleCalls.triggers, null, LOOK_AGAIN);
  usePageTitle(t().schedules);
  return (
    <>
      <ViewHeader title={t().schedules} />
      <div class="page settings schedules">
        <Schedules of={schedules} />
        <Triggers of={triggers} />
      </div>
    </>
  );
}
