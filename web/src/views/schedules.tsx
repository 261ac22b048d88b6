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

export default function SchedulesView() {
  const schedules = useLoaded(scheduleCalls.schedules);
  const triggers = useLoaded(scheduleCalls.triggers);
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
