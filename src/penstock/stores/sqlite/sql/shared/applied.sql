-- The outcome of every job touched: item, state, cancel request.
SELECT json_group_array(json_array(touched.item, job.state, job.cancel_requested))
FROM temp.touched
JOIN job ON job.n = touched.n
