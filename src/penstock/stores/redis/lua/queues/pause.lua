-- Stop claims, or let them go on.
-- Arguments: 1 to pause or 0 to resume; then, each as 1 or 0 and the value: for_ms, reason, by.
-- flags: allow-oom
-- include: shared/outcomes
redis.call('HDEL', META, 'paused_at', 'paused_until', 'paused_why', 'paused_by')
if ARGV[1] == '1' then
  meta_updates.paused_at = now
  if ARGV[2] == '1' then meta_updates.paused_until = now + ARGV[3] end
  if ARGV[4] == '1' then meta_updates.paused_why = ARGV[5] end
  if ARGV[6] == '1' then meta_updates.paused_by = ARGV[7] end
end
notify_for('pending')
return finish(redis.status_reply('OK'))
